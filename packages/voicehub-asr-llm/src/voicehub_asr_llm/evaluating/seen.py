"""Ids of the rows that a model was trained on, kept with it as hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from voicehub.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

FILE = "training_ids.safetensors"
_KEY = "ids_blake2b_64"


@dataclass(frozen=True, eq=False)
class SeenIds:
    """64 bits of BLAKE2b of every id, sorted: a million rows are 8 MB and name nobody.

    Attributes:
        hashes: int64, ascending, without repeats.
    """

    hashes: NDArray[np.int64]

    @classmethod
    def from_ids(cls, ids: Iterable[str]) -> SeenIds:
        """Hash ids."""
        return cls(np.unique(_hashes(ids)))

    def __len__(self) -> int:
        return len(self.hashes)

    def among(self, ids: Iterable[str]) -> list[str]:
        """Return those of ``ids`` that were trained on, in their order."""
        listed = list(ids)
        if not listed or not len(self.hashes):
            return []
        known = np.isin(_hashes(listed), self.hashes)
        return [name for name, seen in zip(listed, known.tolist(), strict=True) if seen]

    def joined(self, other: SeenIds) -> SeenIds:
        """Return both: a later stage has also seen what an earlier one saw."""
        return SeenIds(np.union1d(self.hashes, other.hashes))

    def save(self, directory: Path) -> None:
        """Write ``training_ids.safetensors``."""
        from safetensors.numpy import save_file

        save_file({_KEY: np.ascontiguousarray(self.hashes)}, directory / FILE)

    @classmethod
    def load(cls, directory: Path) -> SeenIds | None:
        """Read what ``save`` wrote; None where there is no such file.

        Raises:
            DataError: the file is damaged.
        """
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        path = directory / FILE
        if not path.is_file():
            return None
        try:
            hashes: Any = load_file(path)[_KEY]
        except (SafetensorError, OSError, KeyError) as error:
            raise DataError(
                f"{path}: the ids of the training data cannot be read ({error}). Restore the file, "
                "or delete it to evaluate without the check for rows that were trained on."
            ) from error
        return cls(np.asarray(hashes, dtype=np.int64))


def _hashes(ids: Iterable[str]) -> NDArray[np.int64]:
    digests = b"".join(
        hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        for name in ids
    )
    return np.frombuffer(digests, dtype="<i8").astype(np.int64)
