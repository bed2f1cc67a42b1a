"""Send a project and named data to a host, and only what changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from voicehub.cli.output import UsageError
from voicehub_remote.places import Places, quoted
from voicehub_remote.project_files import check_files, listing_command, visible_files
from voicehub_remote.rsync import PARTIAL_FOLDER, Sent, Transfer
from voicehub_remote.secret_files import refuse_secret_files
from voicehub_remote.ssh import Remote

# Removes the files that it reads, and folders that are empty then; ends each with a zero byte.
_REMOVE = (
    'xargs -0 sh -c \'rm -f -- "$@"; for f do d=$(dirname -- "$f"); '
    'while [ "$d" != . ] && rmdir -- "$d" 2>/dev/null; do d=$(dirname -- "$d"); done; done\' sh'
)


@dataclass(frozen=True)
class DataItem:
    """A file or folder that git does not see and a run needs.

    Attributes:
        source: here.
        destination: there; a relative path starts in the folder of the project.
    """

    source: Path
    destination: str

    @classmethod
    def parse(cls, text: str, project: Path) -> DataItem:
        """``PATH[=REMOTE]``. Without REMOTE what lies in the project keeps its place in it, and
        anything else goes below its own name.

        Raises:
            UsageError: there is nothing at PATH, or REMOTE is no place.
        """
        path, equals, remote = text.partition("=")
        source = Path(path).expanduser()
        if not source.exists():
            raise UsageError(f"--data {text}: there is no {source}.")
        if not equals:
            full, home = _normal(source), _normal(project)
            inside = full.is_relative_to(home) and full != home
            remote = full.relative_to(home).as_posix() if inside else full.name
        cleaned = remote.removeprefix("./").rstrip("/")
        if cleaned in ("", ".") or ".." in PurePosixPath(cleaned).parts or cleaned[0] in "-~":
            raise UsageError(
                f"--data {text}: {remote or 'nothing'} is no place on the host. Expected a path "
                "relative to the project there, or an absolute one, without '..'."
            )
        return cls(source, cleaned)

    def place(self, places: Places) -> str:
        """Where it goes, from the home directory there."""
        absolute = self.destination.startswith("/")
        return self.destination if absolute else f"{places.project}/{self.destination}"

    def check(self, allowed: Sequence[str]) -> None:
        """Refuse files that look like secrets, and links that lead in a circle.

        Raises:
            UsageError: names them.
        """
        names = [self.source.name]
        if self.source.is_dir():
            for folder, folders, files in os.walk(self.source, followlinks=True):
                _refuse_circles(Path(folder), folders)
                names += [str(Path(folder) / file) for file in files]
        refuse_secret_files(names, allowed, f"--data {self.source}")


@dataclass(frozen=True)
class Upload:
    """What shall be sent.

    Attributes:
        project: its folder.
        data: what git does not see.
        allowed: patterns of files that look like secrets and are none.
        checksum: compare contents of data as well, where times lie. Those of the project are
            compared always: git sets times anew.
    """

    project: Path
    data: tuple[DataItem, ...] = ()
    allowed: tuple[str, ...] = ()
    checksum: bool = False

    def check(self, note: Callable[[str], None]) -> None:
        """Look at all of it before the host is touched.

        Args:
            note: takes remarks about what is left out.

        Raises:
            UsageError: something looks like a secret, or cannot be sent.
        """
        check_files(self.project, visible_files(self.project, note), self.allowed)
        for item in self.data:
            item.check(self.allowed)

    def send(self, remote: Remote, places: Places) -> Sent:
        """Send what the host does not have.

        Raises:
            UsageError: what ``check`` refuses has come up since.
            RemoteError: the host cannot take it.
        """
        names = visible_files(self.project)
        check_files(self.project, names, self.allowed)
        sent = _send_project(remote, places, self.project, names)
        for item in self.data:
            sent += _send_data(remote, places, item, self.checksum)
        return sent


def _normal(path: Path) -> Path:
    """Absolute, without '..', and with links as they are: what is linked keeps its place."""
    return Path(os.path.normpath(path.absolute()))


def _refuse_circles(folder: Path, names: Sequence[str]) -> None:
    """Links are followed, and these would be without end."""
    home = folder.resolve()
    for name in names:
        link = folder / name
        if link.is_symlink() and home.is_relative_to(link.resolve()):
            raise UsageError(
                f"--data: {link} is a link to {link.readlink()}, a folder that it lies in itself. "
                "Remove it, or name what is beside it."
            )


def _send_project(remote: Remote, places: Places, project: Path, names: Sequence[str]) -> Sent:
    made = f"mkdir -p {quoted(places.project)} {quoted(places.runs)} {quoted(places.sources)}"
    listed = remote.run(
        f"{made} && {{ cat {quoted(places.sent)} 2>/dev/null || :; }}", what="make the folders"
    )
    before = {name for name in listed.out.split("\0") if _is_inside(name)}
    gone = sorted(before - set(names))
    shown = listing_command(project)
    if before != set(names):
        # Before anything is sent: an interrupted deploy must not forget what it has brought.
        _remember(remote, places, sorted(before | set(names)), shown)
    if gone:
        remote.run(
            f"cd {quoted(places.project)} && {_REMOVE}",
            what="remove what is no longer in the project",
            stdin=_ended(gone),
        )
    transfer = Transfer(files=names, files_shown=shown, checksum=True)
    sent = remote.push(project, f"{places.project}/", transfer, what="send the project")
    if gone:
        _remember(remote, places, names, shown)
    return sent


def _remember(remote: Remote, places: Places, names: Sequence[str], shown: str) -> None:
    new = quoted(f"{places.sent}.new")
    remote.run(
        f"cat > {new} && mv -f {new} {quoted(places.sent)}",
        what="note what is sent",
        stdin=_ended(names),
        stdin_shown=shown,
    )


def _send_data(remote: Remote, places: Places, item: DataItem, checksum: bool) -> Sent:
    place = item.place(places)
    is_folder = item.source.is_dir()
    folder = place if is_folder else str(PurePosixPath(place).parent)
    remote.run(f"mkdir -p {quoted(folder)}", what=f"make the folder {folder}")
    if not remote.dry_run:
        remote.say(f"sending {item.source} to {place}")
    transfer = Transfer(checksum=checksum, follow_links=True, exclude=(PARTIAL_FOLDER,))
    what = f"send {item.source}"
    return remote.push(item.source, f"{place}/" if is_folder else place, transfer, what=what)


def _is_inside(name: str) -> bool:
    """Whether a line of the list can be a file of the project: only those are ever removed."""
    return bool(name) and not name.startswith("/") and ".." not in PurePosixPath(name).parts


def _ended(names: Sequence[str]) -> str:
    return "".join(f"{name}\0" for name in names)
