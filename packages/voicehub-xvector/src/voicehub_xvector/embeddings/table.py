"""Embeddings with their ids and what is known of their recordings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voicehub.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class EmbeddingTable:
    """Rows in the order of the manifest they came from.

    Attributes:
        ids: unique.
        vectors: float32 (N, D).
        durations: seconds of audio each was made from; NaN where the file does not say.
        speakers: names, empty where unknown.
        audio_filepaths: recordings, empty where unknown.
    """

    ids: tuple[str, ...]
    vectors: NDArray[np.float32]
    durations: NDArray[np.float64]
    speakers: tuple[str, ...]
    audio_filepaths: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def of(
        cls,
        ids: Iterable[str],
        vectors: NDArray[np.float32],
        *,
        durations: Sequence[float] | NDArray[np.float64] | None = None,
        speakers: Sequence[str] | None = None,
        audio_filepaths: Sequence[str] | None = None,
        source: object = "embeddings",
    ) -> EmbeddingTable:
        """Check the columns; those not given are unknown.

        Args:
            source: file that the columns come from, for messages.

        Raises:
            DataError: lengths differ, an id appears twice, or a value is not finite.
        """
        names = tuple(map(str, ids))
        rows = np.asarray(vectors, dtype=np.float32)
        if rows.ndim != 2 or len(rows) != len(names):
            raise DataError(f"{source}: {len(names)} ids with embeddings of shape {rows.shape}.")
        count = len(names)
        columns = {
            "durations": np.full(count, np.nan) if durations is None else durations,
            "speakers": count * ("",) if speakers is None else speakers,
            "audio_filepaths": count * ("",) if audio_filepaths is None else audio_filepaths,
        }
        for name, column in columns.items():
            if len(column) != count:
                raise DataError(f"{source}: {count} ids with {len(column)} {name}.")
        if len(set(names)) < count:
            twice = next(name for name, times in Counter(names).items() if times > 1)
            raise DataError(f"{source}: the id {twice!r} appears twice.")
        if not np.isfinite(rows).all():
            bad = int((~np.isfinite(rows).all(axis=1)).argmax())
            raise DataError(f"{source}: the embedding of {names[bad]!r} is not finite.")
        return cls(
            names,
            rows,
            np.asarray(columns["durations"], dtype=np.float64),
            tuple(map(str, columns["speakers"])),
            tuple(map(str, columns["audio_filepaths"])),
        )
