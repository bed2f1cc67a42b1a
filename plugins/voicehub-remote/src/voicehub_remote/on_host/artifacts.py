"""Sent to the host: lists files of a run with their sizes and SHA-256 digests."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

_CHECKPOINT = re.compile(r"checkpoint-[0-9]+|\.checkpoint-[0-9]+\..*")
_BLOCK = 1 << 20


def main(request: Mapping[str, Any]) -> None:
    """Print one line of JSON: ``{"exists": ..., "files": [...]}``.

    Args:
        request: ``folder``; ``patterns`` of paths below it, none for all but checkpoints;
            ``known``, sizes of files that the other side has: of so many bytes a digest is told
            as well.
    """
    folder, known = Path(request["folder"]), request["known"]
    files = []
    for path in sorted(_paths(folder, request["patterns"])):
        size, whole, first = _digests(folder / path, known.get(path))
        files.append({"path": path, "size": size, "sha256": whole, "first": first})
    print(json.dumps({"exists": folder.is_dir(), "files": files}))


def _paths(folder: Path, patterns: Sequence[str]) -> Iterator[str]:
    for here, folders, names in os.walk(folder):
        if not patterns:
            folders[:] = [name for name in folders if not _CHECKPOINT.fullmatch(name)]
        for path in (Path(here, name) for name in names):
            below = path.relative_to(folder).as_posix()
            wanted = not patterns or any(fnmatch.fnmatchcase(below, item) for item in patterns)
            if wanted and path.is_file():
                yield below


def _digests(path: Path, first_bytes: int | None) -> tuple[int, str, str | None]:
    """Size and digest, and the digest of the first bytes, of a file that may be growing."""
    digest, first, read, size = hashlib.sha256(), None, 0, path.stat().st_size
    with path.open("rb") as stream:
        if first_bytes is not None and first_bytes <= size:
            read = _feed(digest, stream, first_bytes)
            first = digest.hexdigest()
        read += _feed(digest, stream, size - read)
    return read, digest.hexdigest(), first


def _feed(digest: hashlib._Hash, stream: IO[bytes], count: int) -> int:
    """Read ``count`` bytes, or what there is of them; returns how many that were."""
    done = 0
    while done < count:
        block = stream.read(min(_BLOCK, count - done))
        if not block:
            break
        digest.update(block)
        done += len(block)
    return done
