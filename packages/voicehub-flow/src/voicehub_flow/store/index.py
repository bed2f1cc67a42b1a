"""What our stores hold beside the tensors: ids, checksums, statistics, and who extracted them.

``voicehub_store.json`` describes the whole and names its shards, each a directory in the published
layout. ``rows.tsv`` has a line a clip: id, shard, row in it, text, and a digest of each tensor.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from voicehub.errors import DataError
from voicehub_data.files import write_file
from voicehub_flow.store.statistics import ChannelStatistics
from voicehub_flow.store.tables import require_unique

STORE_FILE, ROWS_FILE, SHARDS = "voicehub_store.json", "rows.tsv", "shards"
FORMAT, VERSION = "voicehub-feature-store", 1
_COLUMNS = ("id", "shard", "row", "text")
#: Bytes of a clip's digest of one tensor: no adversary is meant, but damage and exchange.
DIGEST_BYTES = 8


@dataclass(frozen=True)
class StoreRow:
    """One clip.

    Attributes:
        id: unique in the store.
        shard, row: where it lies.
        text: label or caption.
        digests: hex digest by tensor.
    """

    id: str
    shard: int
    row: int
    text: str
    digests: Mapping[str, str]


@dataclass(frozen=True)
class StoreIndex:
    """The two files in memory.

    Attributes:
        rows: clips in the order of the corpus.
        shards: their directories, relative to the store, with their number of rows.
        statistics: of the latents; None where the store holds none.
        extractors: identity of what made each kind of feature, by kind.
        record: further facts: settings of the extraction, rejected clips by reason.
    """

    rows: Sequence[StoreRow]
    shards: Mapping[str, int]
    statistics: ChannelStatistics | None
    extractors: Mapping[str, Any] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict)

    def write(self, directory: Path) -> None:
        """Write both files, the one that makes the store complete last.

        Raises:
            DataError: an id holds a tab or a line break, or a file cannot be written.
        """
        for row in self.rows:
            if not row.id or any(mark in row.id for mark in "\t\r\n"):
                raise DataError(
                    f"clip {row.id!r}: an id must not be empty and hold no tab and no line break."
                )
        names = list(self.rows[0].digests) if self.rows else []
        text = io.StringIO()
        writer = csv.writer(
            # Without a quote character, as the reader has none: else a caption's own are refused.
            text,
            delimiter="\t",
            quoting=csv.QUOTE_NONE,
            quotechar=None,
            lineterminator="\n",
        )
        writer.writerow([*_COLUMNS, *names])
        for row in self.rows:
            digests = [row.digests[name] for name in names]
            writer.writerow([row.id, row.shard, row.row, _one_line(row.text), *digests])
        content = text.getvalue().encode()
        write_file(directory / ROWS_FILE, content)
        document = {
            "format": FORMAT,
            "version": VERSION,
            "clips": len(self.rows),
            "rows_sha256": hashlib.sha256(content).hexdigest(),
            "shards": dict(self.shards),
            "latent_statistics": None if self.statistics is None else self.statistics.to_json(),
            "extractors": dict(self.extractors),
            "record": dict(self.record),
        }
        write_file(directory / STORE_FILE, (json.dumps(document, indent=2) + "\n").encode())


def has_index(directory: Path) -> bool:
    """Whether a directory holds a store of ours."""
    return (directory / STORE_FILE).is_file()


def read_index(directory: Path) -> StoreIndex:
    """Read both files.

    Raises:
        DataError: they are missing, damaged, of a newer version, or do not belong together.
    """
    document = _document(directory / STORE_FILE)
    content = _content(directory / ROWS_FILE)
    if hashlib.sha256(content).hexdigest() != document["rows_sha256"]:
        raise DataError(
            f"{directory / ROWS_FILE}: changed since {STORE_FILE} was written (its SHA-256 is "
            "another), so that ids and clips may not belong together. Restore the file."
        )
    rows = _rows(content, directory / ROWS_FILE, len(document["shards"]))
    if len(rows) != document["clips"]:
        raise DataError(
            f"{directory / ROWS_FILE}: {len(rows)} clips; {STORE_FILE} says {document['clips']}."
        )
    require_unique([row.id for row in rows], str(directory / ROWS_FILE))
    statistics = document["latent_statistics"]
    return StoreIndex(
        rows,
        document["shards"],
        None if statistics is None else ChannelStatistics.from_json(statistics),
        document["extractors"],
        document["record"],
    )


def digest_of(content: bytes | bytearray) -> str:
    """The digest of one clip's bytes of one tensor, hex."""
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).hexdigest()


def _rows(content: bytes, path: Path, shards: int) -> list[StoreRow]:
    reader = csv.reader(
        io.StringIO(content.decode("utf-8"), newline=""), delimiter="\t", quoting=csv.QUOTE_NONE
    )
    header = next(reader, [])
    if tuple(header[:4]) != _COLUMNS:
        raise DataError(f"{path}, line 1: expected the columns {', '.join(_COLUMNS)}, …")
    names = header[4:]
    rows = []
    for number, line in enumerate(reader, 2):
        try:
            identity, shard, row, text, *digests = line
            found = StoreRow(
                identity, int(shard), int(row), text, dict(zip(names, digests, strict=True))
            )
        except ValueError:
            raise DataError(
                f"{path}, line {number}: not a clip of {len(header)} columns."
            ) from None
        if not 0 <= found.shard < shards:
            raise DataError(f"{path}, line {number}: shard {found.shard} of {shards}.")
        rows.append(found)
    return rows


def _document(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(_content(path))
    except ValueError as error:
        raise DataError(f"{path}: cannot be read as JSON ({error}).") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise DataError(f"{path}: not the description of a feature store of ours.")
    if not isinstance(document.get("version"), int) or not 1 <= document["version"] <= VERSION:
        raise DataError(
            f"{path}: version {document.get('version')!r}; this VoiceHub reads up to {VERSION}. "
            "Update voicehub-flow."
        )
    return document


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}).") from error


def _one_line(text: str) -> str:
    """Without tabs and line breaks, which separate columns and clips."""
    return " ".join(text.split())
