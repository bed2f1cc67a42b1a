"""Several sources as one list of rows, with ids that stay unique."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from voicehub.errors import DataError
from voicehub_data.manifest.reader import Role, read_manifest
from voicehub_data.manifest.rows import Manifest


def read_manifests(sources: Sequence[Any], *, role: Role = "train") -> Manifest:
    """Read sources (as :func:`read_manifest` takes them) and join their rows in order.

    Raises:
        DataError: there is no source, or one cannot be read.
        ConfigurationError: a source is wrongly described.
    """
    return join_manifests([read_manifest(source, role=role) for source in sources])


def join_manifests(manifests: Sequence[Manifest]) -> Manifest:
    """Join the rows of manifests; one alone is returned as it is.

    Where a manifest has an id that an earlier one has, all its ids get its name and a colon in
    front, and a note says so: corpora number their recordings alike.

    Raises:
        DataError: there is none.
    """
    if not manifests:
        raise DataError("no data source; expected at least one.")
    if len(manifests) == 1:
        return manifests[0]
    taken: set[str] = set()
    rows, notes = [], []
    for position, manifest in enumerate(manifests):
        own = [row.id for row in manifest.rows]
        prefix = ""
        if not taken.isdisjoint(own):
            prefix = _free_prefix(manifest, position, own, taken)
            notes.append(
                f"{manifest.path}: ids occur in an earlier source; {prefix!r} put in front"
            )
        taken.update(prefix + identity for identity in own)
        rows += [replace(row, id=prefix + row.id) if prefix else row for row in manifest.rows]
        notes += manifest.notes
    digest = hashlib.sha256("\n".join(m.digest for m in manifests).encode()).hexdigest()
    problems = tuple(problem for manifest in manifests for problem in manifest.problems)
    return Manifest(tuple(rows), digest, manifests[0].path, "joined", problems, tuple(notes))


def _free_prefix(manifest: Manifest, position: int, own: Sequence[str], taken: set[str]) -> str:
    """The manifest's name and a colon, with its position where that is taken, too."""
    for prefix in (f"{manifest.path.stem}:", f"{manifest.path.stem}.{position}:"):
        if taken.isdisjoint(prefix + identity for identity in own):
            return prefix
    raise DataError(
        f"{manifest.path}: its ids occur in an earlier source even with {prefix!r} in front. Is it "
        "listed twice?"
    )
