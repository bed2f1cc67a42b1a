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


class F5Dataset:
    """Reads rows, and keeps the frames that fit into memory.

    Args:
        rows, ids, speakers: in one order.
        reader: of mel frames.
        scaling: of them.
        cache_bytes: memory for frames, in each worker.
    """

    def __init__(
        self,
        rows: Sequence[ManifestRow],
        ids: Sequence[tuple[int, ...]],
        speakers: Sequence[int],
        reader: MelReader,
        scaling: MelScaling,
        *,
        cache_bytes: int = 0,
    ) -> None:
        self.rows: Sequence[ManifestRow] = PackedRows(rows)
        self.ids, self.speakers = list(ids), list(speakers)
        self.reader, self.scaling = reader, scaling
        self._kept: dict[int, Tensor] = {}
        self._room = cache_bytes

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> F5Item:
        """The item outside training."""
        return self.get_item(index, None)

    def get_item(self, index: int, key: SampleKey | None) -> F5Item:
        """The item of one draw; equal keys give equal items in any process."""
        row = self.rows[index]
        mel = self._mel(index, row)
        seconds = row.duration or 0.0
        return F5Item(row.id, self.ids[index], mel, self.speakers[index], row.text, seconds, key)

    def sample_id(self, index: int) -> str:
        """Id of an item, for messages."""
        return self.rows[index].id

    @property
    def planning_durations(self) -> list[float]:
        """Seconds that each item lasts."""
        return [row.duration or 0.0 for row in self.rows]

    def resume_fingerprint(self) -> dict[str, Any]:
        """JSON that changes when items would."""
        labels = repr((self.ids, self.speakers))
        return {
            "rows_sha256": rows_digest(self.rows),
            "labels_sha256": hashlib.sha256(labels.encode()).hexdigest(),
            "mel": self.reader.settings(),
            "scaling": self.scaling.to_dict(),
        }

    def _mel(self, index: int, row: ManifestRow) -> Tensor:
        kept = self._kept.get(index)
        if kept is None:
            kept = self.scaling.scaled(self.reader(row))
            size = kept.numel() * kept.element_size()
            if size <= self._room:
                self._kept[index] = kept
                self._room -= size
        return kept
