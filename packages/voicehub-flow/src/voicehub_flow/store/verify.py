"""Read a whole store and compare every clip with its digests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from voicehub.errors import DataError
from voicehub_flow.store import layout
from voicehub_flow.store.index import digest_of
from voicehub_flow.store.reader import FeatureStore, open_store

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class StoreProblem:
    """What is wrong with one tensor of one clip."""

    id: str
    tensor: str
    kind: str  # changed, exchanged, not-finite or negative-std
    message: str


@dataclass
class Verification:
    """What a verification found.

    Attributes:
        clips: that were read.
        tensors: shape of a clip and dtype, by name.
        checked: whether there were digests to compare with.
        problems: in the order of the store.
    """

    clips: int
    tensors: dict[str, str]
    checked: bool
    problems: list[StoreProblem] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, int]:
        """Problems by kind."""
        return dict(Counter(problem.kind for problem in self.problems))


def verify_store(directory: str | Path, progress: Progress | None = None) -> Verification:
    """Read every byte: a changed one is found, and two clips that were exchanged are named.

    Also numbers that are not finite are reported, and deviations under 0.

    Raises:
        DataError: the store cannot be opened.
    """
    store = open_store(directory, required=())
    shapes = {n: f"{list(t.row_shape)} {t.dtype}" for n, t in sorted(store.tensors.items())}
    found = Verification(len(store), shapes, store.has_checksums)
    for name in store.tensors:
        owners = _owners(store, name)
        for position in range(len(store)):
            problem = _problem(store, position, name, owners)
            if problem is not None:
                found.problems.append(problem)
            if progress is not None and name == next(iter(store.tensors)):
                progress(position + 1, len(store))
    return found


def require_sound(directory: Path) -> None:
    """Refuse a store with a problem.

    Raises:
        DataError: names the first ones.
    """
    found = verify_store(directory)
    if found.problems:
        shown = "\n".join(f"  - {problem.message}" for problem in found.problems[:5])
        more = len(found.problems) - 5
        rest = f"\n  ... and {more} more" if more > 0 else ""
        raise DataError(
            f"{directory}: {len(found.problems)} tensors of clips are damaged:\n{shown}{rest}"
        )


def _owners(store: FeatureStore, name: str) -> dict[str, list[int]]:
    owners: dict[str, list[int]] = {}
    if store.has_checksums:
        for position in range(len(store)):
            owners.setdefault(store.digests(position)[name], []).append(position)
    return owners


def _problem(
    store: FeatureStore, position: int, name: str, owners: dict[str, list[int]]
) -> StoreProblem | None:
    stored, row = store.place(position, name)
    content = stored.read_bytes(row)
    where = f"{stored.path}, row {row}"
    clip = store.describe(position)
    if store.has_checksums:
        digest = digest_of(content)
        if digest != store.digests(position)[name]:
            others = owners.get(digest)
            if others:
                other = store.describe(others[0])
                text = f"{where}: should hold clip {clip}, holds clip {other}"
                return StoreProblem(clip, name, "exchanged", text)
            text = f"{where}: {name} of clip {clip} is not what was written"
            return StoreProblem(clip, name, "changed", text)
    if stored.dtype.is_floating_point:
        values = torch.frombuffer(content, dtype=stored.dtype)
        if not bool(values.isfinite().all()):
            text = f"{where}: {name} of clip {clip} holds numbers that are not finite"
            return StoreProblem(clip, name, "not-finite", text)
        if name == layout.STD and bool((values < 0).any()):
            text = f"{where}: deviations of clip {clip} are under 0"
            return StoreProblem(clip, name, "negative-std", text)
    return None
