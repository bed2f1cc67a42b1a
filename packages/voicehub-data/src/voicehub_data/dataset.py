"""Utterances as a map-style dataset whose random draws are keyed by sample."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from voicehub.data.keyed_random import SampleKey
from voicehub.data.packed_rows import PackedRows
from voicehub.errors import DataError
from voicehub_data.augment.base import Augmentation
from voicehub_data.manifest.rows import ManifestRow, rows_digest
from voicehub_data.memory import ItemMemory
from voicehub_data.row_audio import load_row
from voicehub_data.row_dataset import RowDataset

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Item = dict[str, Any]
Transform = Callable[[Item], Item]


class SpeechDataset(RowDataset[Item]):
    """Decodes rows, one item a row.

    An item is ``{"id": str, "audio": float32 (n,), "text": str, "speaker": str | None,
    "duration": seconds of the audio as returned, "key": SampleKey | None}``, passed through
    ``transform`` last.

    Args:
        rows: utterances; a :class:`~voicehub_data.manifest.Manifest` or any iterable of rows.
        sample_rate: rate of the audio returned, in Hz.
        augment: transform of the audio; applied by :meth:`get_item` when a key is given.
        transform: from item to item, e.g. to features. It must be a pure function of the item;
            what it draws, it draws by ``item["key"]`` and ``item["id"]``.
        cache_bytes: keep decoded audio in memory up to this many bytes (in each worker).

    Raises:
        DataError: there are no rows, or two rows have one id.
    """

    def __init__(
        self,
        rows: Iterable[ManifestRow],
        *,
        sample_rate: int,
        augment: Augmentation | None = None,
        transform: Transform | None = None,
        cache_bytes: int = 0,
    ) -> None:
        self.rows = PackedRows(rows)
        if not self.rows:
            raise DataError("the data set holds no rows.")
        self.sample_rate = sample_rate
        self.augment = augment
        self.transform = transform
        self._memory: ItemMemory[NDArray[np.float32]] = ItemMemory(cache_bytes)
        self._require_unique_ids()

    def get_item(self, index: int, key: SampleKey | None) -> Item:
        """The item of one draw; equal keys give equal items in any process.

        Raises:
            DataError: the audio cannot be decoded; the message names file, row and id.
        """
        row = self.rows[index]
        audio = self._memory.get(index, partial(load_row, row, self.sample_rate))
        if key is not None and self.augment is not None:
            audio = self.augment.apply(audio, self.sample_rate, key, row.id)
        item: Item = {
            "id": row.id,
            "audio": audio,
            "text": row.text,
            "speaker": row.speaker,
            "duration": len(audio) / self.sample_rate,
            "key": key,
        }
        return item if self.transform is None else self.transform(item)

    @property
    def durations(self) -> list[float]:
        """Seconds of every row, as the manifest states them.

        Raises:
            DataError: a row has none.
        """
        durations = []
        for row in self.rows:
            if row.duration is None:
                raise DataError(
                    f"{row.location}: no duration. Fill them in with "
                    "voicehub_data.durations.fill_durations(manifest)."
                )
            durations.append(row.duration)
        return durations

    @property
    def planning_durations(self) -> list[float]:
        """The longest that each row can become under augmentation: what a batch plan should use."""
        stretch = 1.0 if self.augment is None else self.augment.max_stretch
        return [duration * stretch for duration in self.durations]

    def resume_fingerprint(self) -> dict[str, Any]:
        """JSON that changes when the data or its augmentation does; folders may be moved."""
        return {
            "rows_sha256": rows_digest(self.rows),
            "sample_rate": self.sample_rate,
            "augment": None if self.augment is None else self.augment.fingerprint(),
        }

    def _require_unique_ids(self) -> None:
        first: dict[str, ManifestRow] = {}
        for row in self.rows:
            other = first.get(row.id)
            if other is not None:
                raise DataError(
                    f"{row.location}: the id is taken by {other.source}, row {other.row}. Ids key "
                    "random draws and join predictions, so they must be unique in a data set."
                )
            first[row.id] = row
