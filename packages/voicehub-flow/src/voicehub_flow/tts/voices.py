"""Who speaks: names and their rows in the speaker table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from voicehub.errors import ConfigurationError, DataError
from voicehub.suggest import did_you_mean
from voicehub_data.manifest import ManifestRow

_SHOWN = 8


class Voices:
    """Speakers that a model tells apart; row 0 of its table is nobody.

    Args:
        names: in the order of their rows; empty where it tells nobody apart.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.names = tuple(names)
        self._rows = {name: row for row, name in enumerate(self.names, 1)}

    def __len__(self) -> int:
        return len(self.names)

    def row(self, name: str | int | None, where: str) -> int:
        """Row of a speaker, given by name or by number from 0; 0 where nobody is told apart.

        Raises:
            ConfigurationError: the speaker is not known, or none is named where there are several.
        """
        if not self.names:
            if name is not None:
                raise ConfigurationError(
                    f"{where}: speaker {name!r} was asked for, but this model knows no speakers. "
                    "A recording of the voice can be given instead: prompt_audio and prompt_text."
                )
            return 0
        if name is None:
            if len(self.names) == 1:
                return 1
            raise ConfigurationError(
                f"{where}: the model has {len(self.names)} speakers; name one of {self._shown()}."
            )
        if str(name) in self._rows:
            return self._rows[str(name)]
        if str(name).isdigit() and int(name) < len(self.names):
            return int(name) + 1
        raise ConfigurationError(
            f"{where}: the model has no speaker {name!r}, only {self._shown()}."
            f"{did_you_mean(str(name), self.names)}"
        )

    def name(self, row: int) -> str | None:
        """Name of a row; None for nobody."""
        return self.names[row - 1] if row else None

    def extended(self, names: Iterable[str]) -> Voices:
        """The same with further names behind the others, sorted."""
        return Voices((*self.names, *sorted(set(names) - self._rows.keys())))

    def _shown(self) -> str:
        more = len(self.names) - _SHOWN
        return ", ".join(self.names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def named_speakers(rows: Sequence[ManifestRow], setting: str) -> tuple[str, ...]:
    """Names of the speakers of a training manifest: none for ``never``, or one voice and ``auto``.

    Raises:
        DataError: some rows name a speaker, and others none.
    """
    named = {row.speaker for row in rows if row.speaker is not None}
    if setting == "never" or (setting == "auto" and len(named) < 2):
        return ()
    nameless = [row for row in rows if row.speaker is None]
    if nameless:
        raise DataError(
            f"{nameless[0].location} names no speaker, and {len(nameless) - 1} more do not: the "
            "model is conditioned on speakers (model.speakers). Add the column 'speaker', or set "
            "model.speakers=never."
        )
    return tuple(sorted(named))
