"""What cases for the conformance kit share that hold recordings."""

from __future__ import annotations

import tempfile
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voicehub.adapters.auto import AutoTrainingAdapter
from voicehub.testing import ConformanceCase
from voicehub_data.audio import load_audio
from voicehub_data.manifest import ManifestRow

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from voicehub.adapters.base import TrainingAdapter


class CorpusCase(ConformanceCase):
    """A case with a folder for the files that it makes; it needs a ``sample_rate``."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="voicehub-case-")

    @property
    def directory(self) -> Path:
        """A folder of the case's own, deleted with it."""
        return Path(self._folder.name)

    @abstractmethod
    def wrapper(self, dropout: float) -> Any:
        """Return a lazy model wrapper."""

    def build(self, *, dropout: float = 0.0) -> TrainingAdapter:
        """Return a fresh adapter."""
        return AutoTrainingAdapter.from_model(self.wrapper(dropout))

    def recorded(
        self, name: str, audio: NDArray[np.float32], text: str = "", **fields: Any
    ) -> ManifestRow:
        """Write a recording into the folder, and return its row.

        Args:
            name: Of the file, without its ending, and of the row.
            audio: Mono samples (n,) at the case's rate.
            text: What it says.
            fields: Further fields of the row.
        """
        import soundfile

        path = self.directory / f"{name}.wav"
        soundfile.write(path, audio, self._rate, subtype="FLOAT")
        return ManifestRow(name, path, text, len(audio) / self._rate, **fields)

    def read_audio(self, path: Path) -> NDArray[np.float32]:
        """Return the samples of a file as the data set reads them."""
        return load_audio(path, sample_rate=self._rate)

    @property
    def _rate(self) -> int:
        assert self.sample_rate is not None
        return self.sample_rate


def exchanged(items: Sequence[Any], *fields: str) -> list[Any]:
    """Return named tuples in which each has these fields of the next."""
    moved = [*items[1:], items[0]]
    return [
        item._replace(**{name: getattr(other, name) for name in fields})
        for item, other in zip(items, moved, strict=True)
    ]
