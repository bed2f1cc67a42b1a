"""Files of a run, from the host to here: what is there, what differs, and proof that it came."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voicehub_remote.errors import RemoteError
from voicehub_remote.program import run_program
from voicehub_remote.rsync import PARTIAL_FOLDER, Sent, Transfer, size_text
from voicehub_remote.runs import output_there

if TYPE_CHECKING:
    from voicehub_remote.places import Places
    from voicehub_remote.session import RunState, Session
    from voicehub_remote.ssh import Remote

_BLOCK = 1 << 20
_NAMED = 8
_LOG = "remote/"


class DifferingFilesError(RemoteError):
    """Files here have other contents than those on the host."""


class NothingThereError(RemoteError):
    """The host has no such files."""


class DigestError(RemoteError):
    """A file that was fetched is not what the host said it is."""


@dataclass(frozen=True)
class Artifact:
    """A file on the host.

    Attributes:
        path: below the folder that was asked for, with ``/``.
        size: bytes.
        sha256: of its content, in hexadecimal.
        first: digest of as many bytes as the file here has; None where it is shorter.
    """

    path: str
    size: int
    sha256: str
    first: str | None = None


@dataclass
class Fetched:
    """What came, and what was here already."""

    destination: Path
    files: list[Path] = field(default_factory=list)
    sent: Sent = field(default_factory=Sent)
    same: int = 0

    def __add__(self, other: Fetched) -> Fetched:
        return Fetched(
            self.destination,
            self.files + other.files,
            self.sent + other.sent,
            self.same + other.same,
        )

    def words(self) -> str:
        """For a person."""
        same = f", {self.same} were here already" if self.same else ""
        count = "1 file" if len(self.files) == 1 else f"{len(self.files)} files"
        return (
            f"fetched {count} ({size_text(self.sent.bytes)}) into {self.destination}{same}; every "
            "SHA-256 is that of the host"
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "destination": self.destination,
            "files": self.files,
            "bytes": self.sent.bytes,
            "same": self.same,
        }


def fetch_folder(
    remote: Remote,
    places: Places,
    folder: str,
    destination: Path,
    *,
    patterns: Sequence[str] = (),
    force: bool = False,
) -> Fetched:
    """Bring files below ``folder`` of the host to ``destination``, and compare their digests.

    Args:
        patterns: of paths below it (``*`` and ``?``, also over ``/``); none takes all but
            checkpoints.
        force: overwrite files here that differ. One that the host's file continues, as a log
            does, is never in the way.

    Raises:
        NothingThereError: the folder, or what was asked for, is not there.
        DifferingFilesError: files here differ; none was changed.
        DigestError: names what came otherwise than it was told; it is not kept.
    """
    known = _sizes(destination)
    request = {"folder": folder, "patterns": list(patterns), "known": known}
    found = run_program(remote, places, "artifacts", request, what=f"list the files of {folder}")
    if found is None:
        remote.pull(f"{folder}/", destination, Transfer(files=["..."]), what="fetch files")
        return Fetched(destination)
    artifacts = [Artifact(**values) for values in found["files"]]
    for item in artifacts:
        if item.path.startswith("/") or ".." in item.path.split("/"):
            raise RemoteError(f"{remote.target}: told of a file {item.path!r} outside of {folder}.")
    if not artifacts:
        asked = f" that matches {', '.join(patterns)}" if patterns else ""
        missing = f"holds no file{asked}" if found["exists"] else "is not there"
        raise NothingThereError(f"{remote.target}: {folder} {missing}: nothing was fetched.")
    wanted = _wanted(artifacts, destination, force=force)
    fetched = Fetched(destination, same=len(artifacts) - len(wanted))
    if wanted:
        destination.mkdir(parents=True, exist_ok=True)
        transfer = Transfer([item.path for item in wanted], checksum=True, follow_links=True)
        fetched.sent = remote.pull(f"{folder}/", destination, transfer, what="fetch files")
        fetched.files = [destination / item.path for item in wanted]
        _prove(wanted, destination)
    return fetched


def fetch_run(
    session: Session,
    state: RunState,
    destination: Path,
    *,
    patterns: Sequence[str] = (),
    force: bool = False,
) -> Fetched:
    """Bring what a run has made to ``destination``, and its log to ``destination/remote``.

    Args:
        patterns: as for ``fetch_folder``; with some, the log comes where one is ``remote/log``.

    Raises:
        NothingThereError: it has made nothing; without patterns, its log has come all the same.
        RemoteError: as ``fetch_folder``.
    """
    remote, places = session.remote, session.places
    log = [item.removeprefix(_LOG) for item in patterns if item.startswith(_LOG)]
    made = [item for item in patterns if not item.startswith(_LOG)]
    fetched, missing = Fetched(destination), None
    if made or not patterns:
        folder = output_there(places, state.output)
        try:
            fetched += fetch_folder(remote, places, folder, destination, patterns=made, force=force)
        except NothingThereError as error:
            if patterns:
                raise
            missing = error
    if log or not patterns:
        fetched += fetch_folder(
            remote, places, places.run(state.run), destination / _LOG,
            patterns=log or ["log"], force=force,
        )  # fmt: skip
    if missing is not None:
        raise NothingThereError(f"{missing} The log of the run is in {destination / _LOG}.")
    return fetched


def digest_of(path: Path, size: int | None = None) -> str:
    """SHA-256 of a file, or of its first ``size`` bytes, in hexadecimal."""
    digest, left = hashlib.sha256(), size
    with path.open("rb") as stream:
        while left is None or left > 0:
            block = stream.read(_BLOCK if left is None else min(_BLOCK, left))
            if not block:
                break
            digest.update(block)
            left = None if left is None else left - len(block)
    return digest.hexdigest()


def _sizes(folder: Path) -> dict[str, int]:
    return {
        path.relative_to(folder).as_posix(): path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file() and PARTIAL_FOLDER not in path.parts
    }


def _wanted(artifacts: Sequence[Artifact], destination: Path, *, force: bool) -> list[Artifact]:
    wanted, differing = [], []
    for item in artifacts:
        path = destination / item.path
        if not path.exists():
            wanted.append(item)
            continue
        here = digest_of(path)
        if here == item.sha256:
            continue
        wanted.append(item)
        if here != item.first:
            differing.append(str(path))
    if differing and not force:
        more = f" and {len(differing) - _NAMED} more" if len(differing) > _NAMED else ""
        raise DifferingFilesError(
            f"{', '.join(differing[:_NAMED])}{more}: here with other contents than on the host, so "
            "nothing was fetched. Overwrite with --force, or choose another folder with --to."
        )
    return wanted


def _prove(artifacts: Sequence[Artifact], destination: Path) -> None:
    wrong = []
    for item in artifacts:
        path = destination / item.path
        # Only as far as the host has told of it: a log may have grown since.
        if not path.is_file() or digest_of(path, item.size) != item.sha256:
            wrong.append(item.path)
            path.unlink(missing_ok=True)
    if wrong:
        raise DigestError(
            f"{', '.join(wrong[:_NAMED])}: SHA-256 differs from what the host told, so what came "
            "was not kept. The run may have written the file anew meanwhile: fetch it again."
        )
