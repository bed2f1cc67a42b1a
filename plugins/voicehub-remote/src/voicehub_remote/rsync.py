"""rsync over the shared connection: its words, and what its report says."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

# Kept beside a file that was cut off midway, and used by the next try.
PARTIAL_FOLDER = ".voicehub-partial"
_FILES = re.compile(r"^Number of (?:regular )?files transferred: ([\d,.]+)", re.MULTILINE)
_BYTES = re.compile(r"^Total transferred file size: ([\d,.]+)", re.MULTILINE)


@dataclass(frozen=True)
class Sent:
    """What a transfer moved, beyond what was there already.

    Attributes:
        files: number of files whose content was sent.
        bytes: their size together.
    """

    files: int = 0
    bytes: int = 0

    def __add__(self, other: Sent) -> Sent:
        return Sent(self.files + other.files, self.bytes + other.bytes)


@dataclass(frozen=True)
class Transfer:
    """How files are moved.

    Attributes:
        files: paths relative to the source, or None for the whole tree.
        files_shown: shell that writes this list, for a dry run; by default the list itself.
        checksum: compare contents; otherwise size and time say whether a file changed.
        delete: remove at the destination what the source has not; only for folders of our own.
        follow_links: send what symbolic links point at; otherwise only links that point out of
            the tree are followed.
        exclude: patterns of rsync.
    """

    files: Sequence[str] | None = None
    files_shown: str | None = None
    checksum: bool = False
    delete: bool = False
    follow_links: bool = False
    exclude: Sequence[str] = field(default=())

    def words(self, ssh: Sequence[str], source: str, destination: str) -> list[str]:
        """The command; where ``files`` is given it reads them from its standard input."""
        words = ["rsync", "-lptz", "-s", "--stats", "--no-human-readable"]
        words += ["--partial-dir", PARTIAL_FOLDER]
        words.append("--copy-links" if self.follow_links else "--copy-unsafe-links")
        if self.checksum:
            words.append("--checksum")
        if self.delete:
            words.append("--delete")
        words += [word for pattern in self.exclude for word in ("--exclude", pattern)]
        words += ["-r"] if self.files is None else ["--from0", "--files-from=-"]
        return [*words, "-e", shlex.join(ssh), "--", source, destination]

    def listing(self) -> str | None:
        """What goes to the standard input."""
        return None if self.files is None else "".join(f"{name}\0" for name in self.files)


def read_report(text: str) -> Sent:
    """What ``--stats`` says was moved."""
    return Sent(_number(_FILES, text), _number(_BYTES, text))


def _number(pattern: re.Pattern[str], text: str) -> int:
    found = pattern.search(text)
    return int(re.sub(r"\D", "", found[1])) if found else 0


def size_text(count: int) -> str:
    """Bytes for a person: 512 B, 1.5 KB, 3.2 GB."""
    size = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
