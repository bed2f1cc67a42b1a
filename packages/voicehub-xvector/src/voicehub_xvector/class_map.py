"""Which label stands for which speaker."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from voicehub.errors import CheckpointError, DataError

CLASSES_FILE = "classes.json"


def class_names(speakers: Sequence[str], speeds: Sequence[float] = ()) -> list[str]:
    """Return the classes of a run: speakers in order of their names, then each speed of them.

    Raises:
        DataError: a speaker has the name that a speed makes of another.
    """
    names = sorted(set(speakers))
    sped = {sped_speaker(name, speed): (name, speed) for speed in speeds for name in names}
    if taken := sorted(sped.keys() & set(names)):
        name, speed = sped[taken[0]]
        raise DataError(
            f"the speaker {taken[0]!r} has the name of {name!r} at speed {speed:g} "
            "(data.speed_speakers): the two would be one class. Rename the speaker, or leave the "
            "speed out."
        )
    return names + list(sped)


def sped_speaker(speaker: str, speed: float) -> str:
    """Name of the speaker that a speed makes of another."""
    return f"{speaker}@{speed:g}"


def classes_digest(classes: Sequence[str]) -> str:
    """SHA-256 (hex) of the names in their order."""
    return hashlib.sha256(json.dumps(list(classes)).encode()).hexdigest()


def save_classes(classes: Sequence[str], directory: Path) -> None:
    """Write the names, one label after the other."""
    text = json.dumps(list(classes), indent=0, ensure_ascii=False)
    (directory / CLASSES_FILE).write_text(text + "\n", encoding="utf-8")


def load_classes(directory: Path) -> list[str]:
    """Read what ``save_classes`` wrote.

    Raises:
        CheckpointError: the file is missing or holds something else.
    """
    path = directory / CLASSES_FILE
    try:
        classes = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise CheckpointError(f"{path}: expected a JSON list of speaker names.")
    return classes


class Remapping(NamedTuple):
    """How the classes of one model become those of another.

    Attributes:
        pairs: (old label, new label) of each speaker in both.
        new: speakers of the new model alone.
        dropped: speakers of the old model alone.
    """

    pairs: list[tuple[int, int]]
    new: list[str]
    dropped: list[str]

    def describe(self) -> str:
        """One line for logs."""
        parts = [f"{len(self.pairs)} speakers keep their prototypes"]
        parts += [f"{len(self.new)} are new ({_some(self.new)})"] if self.new else []
        parts += [f"{len(self.dropped)} are left out ({_some(self.dropped)})"] * bool(self.dropped)
        return "Classes: " + "; ".join(parts) + "."


def remap_classes(old: Sequence[str], new: Sequence[str]) -> Remapping:
    """Match classes by name."""
    labels = {name: label for label, name in enumerate(old)}
    pairs = [(labels[name], label) for label, name in enumerate(new) if name in labels]
    kept = set(old) & set(new)
    return Remapping(pairs, [n for n in new if n not in kept], [n for n in old if n not in kept])


def _some(names: Sequence[str], limit: int = 5) -> str:
    return ", ".join(names[:limit]) + (", ..." if len(names) > limit else "")
