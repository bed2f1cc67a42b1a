"""Audio of manifest rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from voicehub.errors import DataError
from voicehub_data.audio import load_audio
from voicehub_data.manifest.rows import ManifestRow

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def load_row(
    row: ManifestRow, sample_rate: int, *, start: float = 0.0, seconds: float | None = None
) -> NDArray[np.float32]:
    """Decode the audio of a row, mono float32 (n,); see :func:`voicehub_data.audio.load_audio`.

    Args:
        row: one utterance.
        sample_rate: of the result, in Hz.
        start: seconds behind the row's own start.
        seconds: how much to decode; None takes the row's duration.

    Raises:
        DataError: the audio cannot be decoded; the message begins with the row's place.
    """
    try:
        return load_audio(
            row.audio_filepath,
            sample_rate=sample_rate,
            offset=row.offset + start,
            duration=row.duration if seconds is None else seconds,
        )
    except DataError as error:
        raise DataError(f"{row.location}: {error}") from error


def load_rows(
    rows: Sequence[ManifestRow], sample_rate: int
) -> tuple[list[NDArray[np.float32] | None], list[str]]:
    """Decode rows; None where the audio of one cannot be decoded, and why; see :func:`load_row`.

    Errors of the program itself are no failures of a row, and are raised.
    """
    waves: list[NDArray[np.float32] | None] = []
    failures = []
    for row in rows:
        wave = None
        try:
            wave = load_row(row, sample_rate)
        except DataError as error:
            failures.append(str(error))
        waves.append(wave)
    return waves, failures
