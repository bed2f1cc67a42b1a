"""Utterances as token ids and mel frames."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from voicehub.data.keyed_random import SampleKey
from voicehub.data.packed_rows import PackedRows
from voicehub_data.manifest import ManifestRow
from voicehub_data.manifest.rows import rows_digest
from voicehub_data.memory import ItemMemory
from voicehub_data.row_dataset import RowDataset
from voicehub_flow.tts.data.mels import MelReader
from voicehub_flow.tts.scaling import MelScaling


class F5Item(NamedTuple):
    """One utterance.

    Attributes:
        id: of its row.
        ids: rows of the text embedding.
        mel: scaled log-mel frames, float32 (frames, bins).
        speaker: row of the speaker table; 0 is nobody.
        text: as the manifest has it, normalised.
        seconds: of its audio.
        key: names the draw; None outside training.
    """

    id: str
    ids: tuple[int, ...]
    mel: Tensor
    speaker: int
    text: str
    seconds: float
    key: SampleKey | None


class F5Dataset(RowDataset[F5Item]):
    """Reads rows, and keeps the frames that fit into memory.

    Args:
        rows, token_ids, speakers: in one order.
        reader: of mel frames.
        scaling: of them.
        cache_bytes: memory for frames, in each worker.
    """

    def __init__(
        self,
        rows: Sequence[ManifestRow],
        token_ids: Sequence[tuple[int, ...]],
        speakers: Sequence[int],
        reader: MelReader,
        scaling: MelScaling,
        *,
        cache_bytes: int = 0,
    ) -> None:
        self.rows = PackedRows(rows)
        self.token_ids, self.speakers = list(token_ids), list(speakers)
        self.reader, self.scaling = reader, scaling
        self._memory: ItemMemory[Tensor] = ItemMemory(cache_bytes)

    def get_item(self, index: int, key: SampleKey | None) -> F5Item:
        row = self.rows[index]
        mel = self._memory.get(index, lambda: self.scaling.scaled(self.reader(row)))
        seconds = row.duration or 0.0
        return F5Item(
            row.id, self.token_ids[index], mel, self.speakers[index], row.text, seconds, key
        )

    def resume_fingerprint(self) -> dict[str, Any]:
        """JSON that changes when items would."""
        labels = repr((self.token_ids, self.speakers))
        return {
            "rows_sha256": rows_digest(self.rows),
            "labels_sha256": hashlib.sha256(labels.encode()).hexdigest(),
            "mel": self.reader.settings(),
            "scaling": self.scaling.to_dict(),
        }
