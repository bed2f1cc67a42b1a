"""Audio of manifest rows."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from voicehub.errors import DataError
from voicehub_data.audio import load_audio
from voicehub_data.manifest.rows import ManifestRow

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_LISTED = 10


class SilenceNotes:
    """Warns of rows whose audio is nothing but zeros: once of each, and of the first ten.

    Such a row can be decoded and trains without an error, on a sound that says nothing of its
    label. It is no error of its own, as one of them should not end a run after days.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._known: set[str] = set()

    def look_at(self, audio: NDArray[np.float32], row: ManifestRow) -> None:
        """Warn if every sample (n,) is zero."""
        if audio.any() or row.location in self._known or len(self._known) > _LISTED:
            return
        self._known.add(row.location)
        if len(self._known) > _LISTED:
            self._logger.warning(
                "more rows than these are silent; `voicehub data check %s` lists all", row.source
            )
            return
        self._logger.warning(
            "%s: %s: every sample that was read is zero, so there is nothing to learn from it. "
            "Restore the file or remove the row",
            row.location,
            row.audio_filepath,
        )


SILENCE_NOTES = SilenceNotes(logging.getLogger(__name__))


def load_row(
    row: ManifestRow, sample_rate: int, *, start: float = 0.0, seconds: float | None = None
) -> NDArray[np.float32]:
    """Decode the audio of a row, mono float32 (n,); see :func:`voicehub_data.audio.load_audio`.

    Of a row that is silent the log warns, see :class:`SilenceNotes`.

    Args:
        row: one utterance.
        sample_rate: of the result, in Hz.
        start: seconds behind the row's own start.
        seconds: how much to decode; None takes the row's duration.

    Raises:
        DataError: the audio cannot be decoded; the message begins with the row's place.
    """
    try:
        audio = load_audio(
            row.audio_filepath,
            sample_rate=sample_rate,
            offset=row.offset + start,
            duration=row.duration if seconds is None else seconds,
        )
    except DataError as error:
        raise DataError(f"{row.location}: {error}") from error
    SILENCE_NOTES.look_at(audio, row)
    return audio


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
