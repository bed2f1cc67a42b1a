"""Lines of a text file with their numbers, and what can be wrong with its bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from voicehub.errors import DataError

_UTF8_BOM = b"\xef\xbb\xbf"
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its end; ``text`` is None where its bytes are not UTF-8."""

    number: int
    text: str | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class TextFile:
    """A text file read whole: bytes without a byte-order mark, and the digest of all its bytes."""

    path: Path
    content: bytes
    digest: str

    def lines(self) -> Iterator[Line]:
        """Lines split at LF or CR LF only; blank lines are left out, numbers count them."""
        for number, raw in enumerate(self.content.split(b"\n"), start=1):
            raw = raw.removesuffix(b"\r")
            if not raw.strip():
                continue
            try:
                yield Line(number, raw.decode("utf-8"))
            except UnicodeDecodeError as error:
                byte = raw[error.start]
                yield Line(
                    number,
                    None,
                    f"not UTF-8: byte 0x{byte:02x} at position {error.start + 1} of the line; "
                    "save the file as UTF-8",
                )


def read_text_file(path: Path) -> TextFile:
    """Read a manifest's bytes once.

    Raises:
        DataError: the file is missing, unreadable, empty, or in UTF-16.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"{path}: no such manifest.") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}).") from error
    digest = hashlib.sha256(content).hexdigest()
    if content.startswith(_UTF16_BOMS):
        raise DataError(f"{path}: the file is in UTF-16; save it as UTF-8.")
    content = content.removeprefix(_UTF8_BOM)
    if not content.strip():
        raise DataError(f"{path}: the manifest is empty; expected at least one row.")
    return TextFile(path, content, digest)
