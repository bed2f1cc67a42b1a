"""Prompts: what a finished model is asked to make, and the seed of each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from voicehub.data.keyed_random import derive_seed
from voicehub.errors import DataError
from voicehub.suggest import did_you_mean


@dataclass(frozen=True)
class Prompt:
    """One thing to make. What a model does not know, it refuses.

    Attributes:
        id: Names the files; unique among the prompts.
        text: What to say, or what the sound is.
        speaker: Name or number, where the model has several.
        language: Where the model has several.
        features: Id of a row of a feature store, whose features are conditions.
        seed: Of whatever the model draws; None derives one from the id.
        options: What the family takes beyond these.
    """

    id: str
    text: str | None = None
    speaker: str | int | None = None
    language: str | None = None
    features: str | None = None
    seed: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def seed_with(self, base: int) -> int:
        """Its own seed, or one that depends on ``base`` and its id alone: not on the others."""
        if self.seed is not None:
            return self.seed
        return derive_seed("voicehub.sample", base, self.id) % 2**31


_FIELDS = tuple(known.name for known in fields(Prompt))


def read_prompts(path: Path) -> list[Prompt]:
    """Read ``.jsonl``, an object of the fields of ``Prompt`` a line, or one text a line.

    Raises:
        DataError: the file cannot be read, holds nothing, or a line is wrong; says which.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the prompts {path} cannot be read as UTF-8 text: {error}.") from None
    rows: list[Any] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        if path.suffix != ".jsonl":
            rows.append(line.strip())
            continue
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            raise DataError(f"{path}, line {number}: no JSON: {error}.") from None
    return make_prompts(rows, str(path))


def make_prompts(rows: Sequence[Any], where: str) -> list[Prompt]:
    """Prompts of texts or mappings; ids that are not given are ``001`` and so on.

    Args:
        rows: each a text, or a mapping of the fields of ``Prompt``.
        where: for messages.

    Raises:
        DataError: there are none, one is wrong, or two have one id.
    """
    if not rows:
        raise DataError(f"{where}: there is no prompt.")
    width = max(3, len(str(len(rows))))
    prompts = []
    for number, row in enumerate(rows, start=1):
        given = {"text": row} if isinstance(row, str) else row
        prompts.append(_prompt(given, f"{number:0{width}d}", f"{where}, prompt {number}"))
    seen: set[str] = set()
    for prompt in prompts:
        if prompt.id in seen:
            raise DataError(f"{where}: two prompts have the id {prompt.id!r}.")
        seen.add(prompt.id)
    return prompts


def _prompt(given: Any, default_id: str, where: str) -> Prompt:
    if not isinstance(given, Mapping):
        raise DataError(f"{where}: expected a text or a mapping, got {type(given).__name__}.")
    for key in given:
        if key not in _FIELDS:
            raise DataError(f"{where}: unknown key {key!r}.{did_you_mean(str(key), _FIELDS)}")
    values = dict(given)
    own_id = values.pop("id", default_id)
    if not isinstance(own_id, str) or not own_id:
        raise DataError(f"{where}: id must be a text, got {own_id!r}.")
    for name in ("text", "language", "features"):
        if values.get(name) is not None and not isinstance(values[name], str):
            raise DataError(f"{where}: {name} must be a text, got {values[name]!r}.")
    seed = values.get("seed")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
        raise DataError(f"{where}: seed must be a number of at least 0, got {seed!r}.")
    if not isinstance(values.get("options", {}), Mapping):
        raise DataError(f"{where}: options must be a mapping.")
    if values.get("text") is None and values.get("features") is None:
        raise DataError(f"{where}: give text, features or both.")
    return Prompt(own_id, **values)
