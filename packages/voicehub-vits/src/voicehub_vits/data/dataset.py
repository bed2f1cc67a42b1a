"""Utterances as model inputs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from voicehub.data.keyed_random import SampleKey
from voicehub.data.packed_rows import PackedRows
from voicehub_data.manifest import ManifestRow
from voicehub_data.manifest.rows import rows_digest
from voicehub_data.memory import ItemMemory
from voicehub_data.row_dataset import RowDataset
from voicehub_vits.data.preparation import AudioPreparation, Prepared


class VitsItem(NamedTuple):
    """One utterance.

    Attributes:
        id: of its row.
        input_ids: token ids.
        prepared: audio and spectrogram.
        speaker, language: rows of the embedding tables; 0 where there are none.
        text: as the manifest has it.
        key: names the draw; None outside training.
    """

    id: str
    input_ids: tuple[int, ...]
    prepared: Prepared
    speaker: int
    language: int
    text: str
    key: SampleKey | None


class Labels(NamedTuple):
    """What a row says beside its audio.

    Attributes:
        input_ids: token ids.
        speaker, language: rows of the embedding tables.
    """

    input_ids: tuple[int, ...]
    speaker: int = 0
    language: int = 0


class VitsDataset(RowDataset[VitsItem]):
    """Prepares rows, and keeps what fits into memory.

    Args:
        rows, labels: in one order.
        preparation: of the audio.
        cache_bytes: memory for prepared clips, in each worker.
    """

    def __init__(
        self,
        rows: Sequence[ManifestRow],
        labels: Sequence[Labels],
        preparation: AudioPreparation,
        *,
        cache_bytes: int = 0,
    ) -> None:
        self.rows = PackedRows(rows)
        self.labels = list(labels)
        self.preparation = preparation
        self._memory: ItemMemory[Prepared] = ItemMemory(cache_bytes)

    def get_item(self, index: int, key: SampleKey | None) -> VitsItem:
        row, labels = self.rows[index], self.labels[index]
        prepared = self._memory.get(index, partial(self.preparation, row))
        return VitsItem(row.id, labels.input_ids, prepared, labels.speaker,
                        labels.language, row.text, key)  # fmt: skip

    def resume_fingerprint(self) -> dict[str, Any]:
        """JSON that changes when items would."""
        return {
            "rows_sha256": rows_digest(self.rows),
            "labels_sha256": hashlib.sha256(repr(self.labels).encode()).hexdigest(),
            "preparation": dict(self.preparation.settings()),
        }
