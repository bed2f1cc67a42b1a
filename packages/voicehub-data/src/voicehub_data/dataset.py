"""Utterances as a map-style dataset whose random draws are keyed by sample."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from voicehub.data.keyed_random import SampleKey
from voicehub.data.packed_rows import PackedRows
from voicehub.errors import DataError
from voicehub_data.audio import load_audio
from voicehub_data.augment.base import Augmentation
from voicehub_data.manifest.rows import ManifestRow, rows_digest

if TYPE_CHECKING:
    from numpy.typing import NDArray

Item = dict[str, Any]
Transform = Callable[[Item], Item]


class SpeechDataset:
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
        # Packed: worker processes would copy a list of objects page by page as they read it.
        self.rows: Sequence[ManifestRow] = PackedRows(rows)
        if not self.rows:
            raise DataError("the data set holds no rows.")
        self.sample_rate = sample_rate
        self.augment = augment
        self.transform = transform
        self._cache: dict[int, NDArray[np.float32]] = {}
        self._cache_left = cache_bytes
        self._require_unique_ids()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Item:
        """The item without augmentation."""
        return self.get_item(index, None)

    def get_item(self, index: int, key: SampleKey | None) -> Item:
        """The item of one draw; equal keys give equal items in any process.

        Raises:
            DataError: the audio cannot be decoded; the message names file, row and id.
        """
        row = self.rows[index]
        audio = self._audio(index, row)
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
    def ids(self) -> list[str]:
        return [row.id for row in self.rows]

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

    def _audio(self, index: int, row: ManifestRow) -> NDArray[np.float32]:
        cached = self._cache.get(index)
        if cached is not None:
            return cached
        try:
            audio = load_audio(
                row.audio_filepath,
                sample_rate=self.sample_rate,
                offset=row.offset,
                duration=row.duration,
            )
        except DataError as error:
            raise DataError(f"{row.location}: {error}") from error
        if audio.nbytes <= self._cache_left:
            # A cached array is handed out again and again: writing into it must fail.
            audio.flags.writeable = False
            self._cache[index] = audio
            self._cache_left -= audio.nbytes
        return audio

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
