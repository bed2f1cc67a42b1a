"""The manifest of a checkpoint: what it is, which files it has, their sizes and SHA-256 digests.

``.complete`` holds the digest of the manifest itself, so that damage to either shows.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from voicehub.checkpoints.layout import COMPLETE_FILE, FORMAT_VERSION, MANIFEST_FILE
from voicehub.checkpoints.layout import checkpoint_step as step_in_name
from voicehub.checkpoints.strict_json import dump_json, parse_json
from voicehub.errors import CheckpointCorruptError, CheckpointMismatchError

_CHUNK = 1 << 20


class FileDigest(NamedTuple):
    """Size in bytes and SHA-256 (hexadecimal) of a file."""

    size: int
    sha256: str


def hash_file(path: Path) -> FileDigest:
    """Read a file once and return its size and digest."""
    digest = hashlib.sha256()
    size = 0
    buffer = memoryview(bytearray(_CHUNK))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            digest.update(buffer[:count])
            size += count
    return FileDigest(size, digest.hexdigest())


def build_manifest(step: int, files: Mapping[str, FileDigest], fields: Mapping[str, Any]) -> bytes:
    """Return the manifest of a checkpoint as JSON.

    Args:
        step: global step.
        files: digests by path relative to the checkpoint, with forward slashes.
        fields: further entries, such as ``run_id``, ``model_type``, ``resume_signature``.
    """
    entries = dict(fields)
    entries["format_version"] = FORMAT_VERSION
    entries["global_step"] = step
    entries["required_files"] = sorted(files)
    entries["file_integrity"] = {
        name: {"size": file.size, "sha256": file.sha256} for name, file in files.items()
    }
    return dump_json(entries, "checkpoint manifest")


def complete_mark(manifest: bytes) -> bytes:
    """Return the content of ``.complete`` for a manifest."""
    return (hashlib.sha256(manifest).hexdigest() + "\n").encode()


def read_manifest(checkpoint: Path) -> dict[str, Any]:
    """Read a manifest after checking it against ``.complete``; no other file is opened.

    Raises:
        CheckpointCorruptError: a file is missing or damaged (named).
        CheckpointMismatchError: the format is newer or older than this version reads, or the
            directory's number is not that of the manifest.
    """
    mark = _read_required(checkpoint, COMPLETE_FILE, "the checkpoint was never completed")
    content = _read_required(checkpoint, MANIFEST_FILE, "the checkpoint cannot be verified")
    if mark != complete_mark(content):
        raise CheckpointCorruptError(
            f"{checkpoint}: {MANIFEST_FILE} and {COMPLETE_FILE} disagree; one of the two was "
            "changed or damaged after saving. Use another checkpoint."
        )
    try:
        manifest: dict[str, Any] = parse_json(content)
    except ValueError as error:
        raise CheckpointCorruptError(
            f"{checkpoint / MANIFEST_FILE} is no JSON: {error}."
        ) from error
    _check_version(checkpoint, manifest)
    _check_entries(checkpoint, manifest)
    named = step_in_name(checkpoint)
    if named is not None and named != manifest["global_step"]:
        raise CheckpointMismatchError(
            f"{checkpoint}: the directory is named for step {named}, but its manifest says step "
            f"{manifest['global_step']}; the directory was renamed."
        )
    return manifest


def verify_files(
    checkpoint: Path, manifest: Mapping[str, Any], *, allow_others: bool = False
) -> None:
    """Check that no file was added, then the size of every file, then every digest.

    Hidden files are passed over: file managers and network file systems leave some anywhere.

    Args:
        checkpoint: the directory.
        manifest: its manifest.
        allow_others: files that the manifest does not list are accepted, as in older formats.

    Raises:
        CheckpointCorruptError: names the first file that is missing, differs or is foreign.
    """
    integrity: Mapping[str, Mapping[str, Any]] = manifest["file_integrity"]
    verify_sizes(checkpoint, manifest, allow_others=allow_others)
    for name, expected in integrity.items():
        if hash_file(checkpoint / name).sha256 != expected["sha256"]:
            raise CheckpointCorruptError(
                f"{checkpoint / name} is damaged: its SHA-256 differs from the manifest's. Use "
                "another checkpoint."
            )


def verify_sizes(
    checkpoint: Path, manifest: Mapping[str, Any], *, allow_others: bool = False
) -> None:
    """``verify_files`` without the digests: no content is read, so that it costs nothing.

    Raises:
        CheckpointCorruptError: names the first file that is missing, differs or is foreign.
    """
    integrity: Mapping[str, Mapping[str, Any]] = manifest["file_integrity"]
    for name in _names_below(checkpoint):
        if not allow_others and name not in integrity and name != MANIFEST_FILE:
            raise CheckpointCorruptError(
                f"{checkpoint / name} is not part of the checkpoint: its manifest does not list "
                "it. Move it elsewhere, or use another checkpoint."
            )
    for name, expected in integrity.items():
        path = checkpoint / name
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            raise CheckpointCorruptError(
                f"{path} is missing, though the manifest lists it. Use another checkpoint."
            ) from None
        if size != expected["size"]:
            raise CheckpointCorruptError(
                f"{path} has {size:,} bytes, but {expected['size']:,} were written; the file was "
                "truncated or changed. Use another checkpoint."
            )


def _names_below(checkpoint: Path) -> list[str]:
    """Return relative names, with forward slashes, of all files that are not hidden."""
    found = []
    for directory, below, files in os.walk(checkpoint):
        below[:] = [name for name in below if not name.startswith(".")]
        inside = Path(directory).relative_to(checkpoint)
        found += [(inside / name).as_posix() for name in files if not name.startswith(".")]
    return sorted(found)


def _read_required(checkpoint: Path, name: str, consequence: str) -> bytes:
    try:
        return (checkpoint / name).read_bytes()
    except FileNotFoundError:
        raise CheckpointCorruptError(
            f"{checkpoint / name} is missing: {consequence}. Use another checkpoint."
        ) from None


def _check_version(checkpoint: Path, manifest: Any) -> None:
    version = manifest.get("format_version") if isinstance(manifest, dict) else None
    if version == FORMAT_VERSION:
        return
    if isinstance(version, int) and version > FORMAT_VERSION:
        advice = "it was written by a newer voicehub; upgrade to read it"
    else:
        advice = "`voicehub checkpoint convert` reads older formats as weights for a warm start"
    raise CheckpointMismatchError(
        f"{checkpoint} has checkpoint format {version!r}, this version reads {FORMAT_VERSION}: "
        f"{advice}."
    )


def _check_entries(checkpoint: Path, manifest: dict[str, Any]) -> None:
    """Check the manifest's own entries, which code below relies on."""
    integrity = manifest.get("file_integrity")
    sound = (
        isinstance(manifest.get("global_step"), int)
        and isinstance(integrity, dict)
        and sorted(integrity) == manifest.get("required_files")
        and all(
            isinstance(entry, dict) and entry.keys() == {"size", "sha256"}
            for entry in integrity.values()
        )
    )
    if not sound:
        raise CheckpointCorruptError(
            f"{checkpoint / MANIFEST_FILE} lacks entries that every manifest has."
        )
    for name in manifest["required_files"]:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or (os.sep != "/" and os.sep in name):
            raise CheckpointCorruptError(
                f"{checkpoint / MANIFEST_FILE} lists {name!r}, which lies outside the checkpoint."
            )
