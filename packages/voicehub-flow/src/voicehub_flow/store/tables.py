"""The TSV beside a store: ``id`` and ``label`` (video) or ``caption`` (audio), a line a clip."""

from __future__ import annotations

import csv
import io
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from voicehub.errors import DataError

#: Columns that hold the text, the first that is there is taken.
TEXT_COLUMNS = ("label", "caption", "text")
_SHOWN = 5


@dataclass(frozen=True)
class StoreTable:
    """Ids and texts in the order of the file.

    Attributes:
        path: the file.
        ids, texts: of one length; texts are empty where the file has no such column.
    """

    path: Path
    ids: tuple[str, ...]
    texts: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.ids)


def read_table(path: str | Path) -> StoreTable:
    """Read a TSV with a column ``id``.

    Raises:
        DataError: no such file, no column ``id``, a line of another width, an empty or a repeated
            id; names the line.
    """
    path = Path(path).expanduser()
    reader = csv.reader(
        io.StringIO(_text(path), newline=""), delimiter="\t", quoting=csv.QUOTE_NONE
    )
    header = next(reader, None)
    if not header or "id" not in header:
        raise DataError(
            f"{path}, line 1: expected a header with the column 'id', found {header or 'nothing'}."
        )
    place = header.index("id")
    text = next((header.index(name) for name in TEXT_COLUMNS if name in header), None)
    ids, texts = [], []
    for number, line in enumerate(reader, 2):
        if not line:
            continue
        if len(line) != len(header):
            raise DataError(
                f"{path}, line {number}: {len(line)} columns; its header has {len(header)} "
                f"({', '.join(header)}). Columns are separated by tabs."
            )
        if not line[place].strip():
            raise DataError(f"{path}, line {number}: no id.")
        ids.append(line[place].strip())
        texts.append("" if text is None else line[text].strip())
    require_unique(ids, str(path))
    return StoreTable(path, tuple(ids), tuple(texts))


def require_unique(ids: list[str] | tuple[str, ...], where: str) -> None:
    """Refuse ids that come twice.

    Raises:
        DataError: names the first of them.
    """
    if len(set(ids)) == len(ids):
        return
    twice = [name for name, count in Counter(ids).items() if count > 1]
    raise DataError(
        f"{where}: {len(twice)} ids come more than once ({named(twice)}); clips are joined by id, "
        "so that each must be one clip's own."
    )


def named(ids: list[str] | tuple[str, ...]) -> str:
    """The first ids, and how many more there are, for messages."""
    more = f" and {len(ids) - _SHOWN:,} more" if len(ids) > _SHOWN else ""
    return ", ".join(repr(name) for name in ids[:_SHOWN]) + more


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}).") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text, from byte {error.start} on.") from error
