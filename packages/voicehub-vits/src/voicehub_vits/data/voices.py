"""Which speaker and language stands in which row of the embedding tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from voicehub.errors import ConfigurationError, DataError
from voicehub.suggest import did_you_mean
from voicehub_data.manifest import ManifestRow


@dataclass(frozen=True)
class Voices:
    """The tables of a model.

    Attributes:
        speakers: name by row of the speaker table; empty without one. A row of a checkpoint that
            no name is known for is called by its number.
        languages: name by row of the language table; empty without one.
        pairs: (speaker, language) rows that training has seen together, sorted.
    """

    speakers: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "speakers": list(self.speakers),
            "languages": list(self.languages),
            "pairs": [list(pair) for pair in self.pairs],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Voices:
        """Read what ``to_dict`` returned."""
        pairs = tuple((int(speaker), int(language)) for speaker, language in values["pairs"])
        return cls(tuple(values["speakers"]), tuple(values["languages"]), pairs)

    @classmethod
    def numbered(cls, count: int) -> Voices:
        """The voices of a checkpoint that says how many it has, and not who they are."""
        return cls(tuple(str(number) for number in range(count))) if count > 1 else cls()

    def speaker(self, name: str | int | None, where: str) -> int:
        """Row of a speaker; 0 where the model has one voice.

        Raises:
            ConfigurationError: none is named where there are several, or it is not there.
        """
        return _row("speaker", self.speakers, name, where)

    def language(self, name: str | int | None, where: str) -> int:
        """Row of a language; 0 where the model knows none."""
        return _row("language", self.languages, name, where)


def _row(kind: str, names: Sequence[str], name: str | int | None, where: str) -> int:
    if not names:
        if name is not None and kind == "speaker":
            raise ConfigurationError(
                f"{where}: speaker {name!r} was asked for, but this model has a single voice."
            )
        return 0
    if name is None:
        if len(names) == 1:
            return 0
        raise ConfigurationError(
            f"{where}: this model has {len(names)} {kind}s; name one of {_listed(names)}."
        )
    if str(name) in names:
        return names.index(str(name))
    number = int(name) if str(name).lstrip("-").isdigit() else None
    if number is not None and 0 <= number < len(names):
        return number
    if number is not None:
        raise ConfigurationError(
            f"{where}: {kind} id {number} is out of range: the model has {len(names)} {kind}s, "
            f"0 to {len(names) - 1}."
        )
    raise ConfigurationError(
        f"{where}: the model has no {kind} {name!r}, only {_listed(names)}."
        f"{did_you_mean(str(name), names)}"
    )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + more


def voices_of_rows(
    rows: Sequence[ManifestRow],
    *,
    table: int | None,
    has_speakers: bool,
    has_languages: bool,
    given: Mapping[str, int],
    known: Voices | None = None,
) -> Voices:
    """Assign table rows to the names of a training manifest.

    Args:
        rows: of the training data.
        table: rows of the checkpoint's speaker table, which is kept; None makes a new one.
        has_speakers: the model conditions on speakers.
        has_languages: it conditions on languages.
        given: table rows by speaker name, where they are set by hand.
        known: of the artifact that training goes on from; its names keep their rows.

    Raises:
        ConfigurationError: an id lies outside the table, there are more names than rows, or the
            artifact does not know a name.
        DataError: a row names no speaker or language.
    """
    speakers: tuple[str, ...] = ()
    if has_speakers:
        if known is not None and not given:
            given = _known_rows(rows, known)
        speakers = _speaker_table(rows, table, given, () if known is None else known.speakers)
    languages = _languages(rows, known) if has_languages else ()
    seen = {
        (
            speakers.index(_named(row, "speaker")) if speakers else 0,
            languages.index(_named(row, "language")) if languages else 0,
        )
        for row in rows
    }
    return Voices(speakers, languages, tuple(sorted(seen.union(known.pairs if known else ()))))


def _known_rows(rows: Sequence[ManifestRow], known: Voices) -> dict[str, int]:
    """Rows of the artifact's speaker table by the names of the manifest."""
    names = sorted({_named(row, "speaker") for row in rows})
    strangers = [name for name in names if name not in known.speakers]
    if strangers:
        raise ConfigurationError(
            f"The artifact knows the speakers {_listed(known.speakers)}, and the training manifest "
            f"names {_listed(strangers)}. Say whose rows they take over in data.speaker_ids (all "
            "speakers of the manifest), or start from its native_export with "
            "model.speaker_table=new."
        )
    return {name: known.speakers.index(name) for name in names}


def _languages(rows: Sequence[ManifestRow], known: Voices | None) -> tuple[str, ...]:
    names = sorted({_named(row, "language") for row in rows})
    if known is None:
        return tuple(names)
    strangers = [name for name in names if name not in known.languages]
    if strangers:
        raise ConfigurationError(
            f"The artifact knows the languages {_listed(known.languages)}, and the training "
            f"manifest names {_listed(strangers)}, for which its table has no row."
        )
    return known.languages


def _speaker_table(
    rows: Sequence[ManifestRow],
    table: int | None,
    given: Mapping[str, int],
    old: Sequence[str] = (),
) -> tuple[str, ...]:
    names = sorted({_named(row, "speaker") for row in rows})
    strangers = sorted(set(given) - set(names))
    if strangers:
        raise ConfigurationError(
            f"data.speaker_ids names {_listed(strangers)}, whom the training manifest does not "
            f"have.{did_you_mean(strangers[0], names)}"
        )
    places = {name: given.get(name, position) for position, name in enumerate(names)}
    if given and set(given) != set(names):
        missing = sorted(set(names) - set(given))
        raise ConfigurationError(f"data.speaker_ids leaves out {_listed(missing)}; name all.")
    size = len(names) if table is None else table
    for name, place in places.items():
        if not 0 <= place < size:
            raise ConfigurationError(
                f"speaker {name!r} has id {place}, which is out of range: the speaker table has "
                f"{size} rows. Give other data.speaker_ids, or make a new table for the speakers "
                "of the manifest (model.speaker_table=new)."
            )
    if len(set(places.values())) != len(places):
        raise ConfigurationError("data.speaker_ids gives two speakers one id.")
    held = {place: name for name, place in places.items()}
    unheard = dict(enumerate(old))
    return tuple(held.get(place, unheard.get(place, str(place))) for place in range(size))


def _named(row: ManifestRow, kind: str) -> str:
    value = getattr(row, kind)
    if value is None:
        raise DataError(
            f"{row.location}: names no {kind}, and the model is conditioned on it. Add the column "
            f"{kind!r} to the manifest."
        )
    return str(value)
