"""Embedding the rows of one group."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from voicehub.errors import DataError
from voicehub_data.manifest import ManifestRow
from voicehub_xvector.extract.job import ExtractionSettings, Failure, GroupResult
from voicehub_xvector.extract.recordings import RecordingPiece, read_pieces

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

_BUFFER_SECONDS = 300.0
"""Audio that is held before it is embedded."""


class Embedder(Protocol):
    """What extraction needs of a model."""

    @property
    def sample_rate(self) -> int:
        """Hz."""

    def embed(
        self, waveforms: Sequence[NDArray[np.float32]], sampling_rate: int, *, batch_size: int
    ) -> Tensor:
        """(B, D) of recordings."""


class _Sums:
    """The weighted sum of a row's pieces."""

    def __init__(self) -> None:
        self.vector: NDArray[np.float64] | float = 0.0
        self.duration = 0.0
        self.speech = 0.0


class GroupEmbedder:
    """Embeds rows piece by piece; a row that cannot be read does not stop the others."""

    def __init__(self, model: Embedder, settings: ExtractionSettings) -> None:
        self._model = model
        self._settings = settings

    def embed(
        self,
        rows: Sequence[ManifestRow],
        first: int,
        at: Callable[[str], None] = lambda place: None,
    ) -> GroupResult:
        """Embed rows ``first`` and following of a manifest, telling where it is ``at``."""
        sums = [_Sums() for _ in rows]
        failures: dict[int, str] = {}
        buffer: list[tuple[int, RecordingPiece]] = []
        held = 0.0
        for number, row in enumerate(rows):
            at(f"{row.audio_filepath} ({row.location})")
            for piece in self._pieces(row, number, failures):
                sums[number].duration += piece.seconds
                if len(piece.audio):
                    buffer.append((number, piece))
                    held += piece.seconds
                if held >= _BUFFER_SECONDS:
                    self._flush(buffer, sums, failures)
                    held = 0.0
        self._flush(buffer, sums, failures)
        for number, item in enumerate(sums):
            if not item.speech and number not in failures:
                failures[number] = "no speech found (energy_vad)"
        return self._result(rows, first, sums, failures)

    def _pieces(
        self, row: ManifestRow, number: int, failures: dict[int, str]
    ) -> Iterator[RecordingPiece]:
        """The row's pieces, as far as it can be read; a failure is noted."""
        settings = self._settings
        try:
            yield from read_pieces(
                row,
                self._model.sample_rate,
                chunk_seconds=settings.chunk_seconds,
                energy_vad=settings.energy_vad,
            )
        except DataError as error:
            failures[number] = str(error)

    def _flush(
        self,
        buffer: list[tuple[int, RecordingPiece]],
        sums: list[_Sums],
        failures: dict[int, str],
    ) -> None:
        taken = [(number, piece) for number, piece in buffer if number not in failures]
        buffer.clear()
        if not taken:
            return
        try:
            vectors = self._vectors([piece for _, piece in taken])
        except DataError:
            # One of them is at fault: each alone says which.
            for number, piece in taken:
                self._add_alone(number, piece, sums, failures)
            return
        for (number, piece), vector in zip(taken, vectors, strict=True):
            self._add(sums[number], piece, vector)

    def _add_alone(
        self, number: int, piece: RecordingPiece, sums: list[_Sums], failures: dict[int, str]
    ) -> None:
        try:
            self._add(sums[number], piece, self._vectors([piece])[0])
        except DataError as error:
            failures[number] = str(error)

    def _vectors(self, pieces: Sequence[RecordingPiece]) -> NDArray[np.float64]:
        embedded = self._model.embed(
            [piece.audio for piece in pieces],
            self._model.sample_rate,
            batch_size=self._settings.batch_size,
        )
        vectors: NDArray[np.float64] = embedded.numpy().astype(np.float64)
        if not np.isfinite(vectors).all():
            raise DataError("the model gave an embedding that is not finite.")
        return vectors

    def _add(self, sums: _Sums, piece: RecordingPiece, vector: NDArray[np.float64]) -> None:
        seconds = len(piece.audio) / self._model.sample_rate
        sums.vector = sums.vector + seconds * vector
        sums.speech += seconds

    def _result(
        self,
        rows: Sequence[ManifestRow],
        first: int,
        sums: Sequence[_Sums],
        failures: dict[int, str],
    ) -> GroupResult:
        kept = [number for number in range(len(rows)) if number not in failures]
        vectors = [sums[number].vector / sums[number].speech for number in kept]
        return GroupResult(
            np.array([first + number for number in kept], dtype=np.int64),
            np.array(vectors, dtype=np.float32),
            np.array([sums[number].duration for number in kept]),
            np.array([sums[number].speech for number in kept]),
            tuple(
                Failure(rows[number].id, rows[number].location, reason)
                for number, reason in sorted(failures.items())
            ),
        )
