"""Trial lists as VoxCeleb publishes them, and finding their recordings among embeddings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import numpy as np

from voicehub.errors import DataError
from voicehub_data.audio import AUDIO_SUFFIXES
from voicehub_data.manifest.lines import read_text_file
from voicehub_xvector.embeddings import EmbeddingTable

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LABELS = {"1": 1, "0": 0}


@dataclass(frozen=True, eq=False)
class TrialList:
    """Trials in the order of their file.

    Attributes:
        path: the file.
        names: the different names of recordings, in the order they first appear.
        left, right: int64 (trials,), positions in ``names``.
        labels: int8 (trials,), 1 for the same speaker; None where the list has no labels.
        rows: int64 (trials,), 1-based lines of the file.
    """

    path: Path
    names: tuple[str, ...]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    labels: NDArray[np.int8] | None
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)


def read_trials(path: str | Path) -> TrialList:
    """Read ``1 a.wav b.wav`` (1 same speaker, 0 different) a line, or ``a.wav b.wav`` unlabelled.

    Raises:
        DataError: the file cannot be read, or a row differs; file and row are named.
    """
    path = Path(path)
    positions: dict[str, int] = {}
    pairs: list[tuple[int, int, int]] = []
    labels: list[int] = []
    labelled: bool | None = None
    for line in read_text_file(path).lines():
        where = f"{path}, row {line.number}"
        if line.text is None:
            raise DataError(f"{where}: {line.error}.")
        words = line.text.split()
        if labelled is None:
            labelled = len(words) == 3
        if len(words) != 2 + labelled:
            form = "'1 a.wav b.wav'" if labelled else "'a.wav b.wav', as in the first row,"
            raise DataError(f"{where}: expected {form} got {line.text!r}.")
        if labelled:
            if words[0] not in _LABELS:
                raise DataError(f"{where}: a label is 1 (same speaker) or 0, got {words[0]!r}.")
            labels.append(_LABELS[words[0]])
        left, right = (positions.setdefault(name, len(positions)) for name in words[-2:])
        pairs.append((left, right, line.number))
    table = np.array(pairs, dtype=np.int64).reshape(-1, 3)
    return TrialList(
        path,
        tuple(positions),
        table[:, 0],
        table[:, 1],
        np.array(labels, dtype=np.int8) if labelled else None,
        table[:, 2],
    )


def locate(trials: TrialList, table: EmbeddingTable, source: object) -> NDArray[np.int64]:
    """Row of the table for each of the list's names.

    A name is an id; or an id with an audio suffix behind it; or the end of one recording's path.

    Args:
        source: file of the table, for messages.

    Raises:
        DataError: a name is not there, or is the end of several paths; file and row are named.
    """
    by_id = {name: row for row, name in enumerate(table.ids)}
    by_tail: dict[str, list[int]] | None = None
    found = np.empty(len(trials.names), dtype=np.int64)
    for position, name in enumerate(trials.names):
        row = by_id.get(name)
        if row is None and PurePosixPath(name).suffix.lower() in AUDIO_SUFFIXES:
            row = by_id.get(str(PurePosixPath(name).with_suffix("")))
        if row is None:
            by_tail = _tails(table) if by_tail is None else by_tail
            rows = by_tail.get(name, [])
            if len(rows) != 1:
                raise DataError(f"{_first_use(trials, position)}: {_absent(name, rows, source)}")
            row = rows[0]
        found[position] = row
    return found


def _tails(table: EmbeddingTable) -> dict[str, list[int]]:
    """Rows by every ending of their recording's path."""
    tails: dict[str, list[int]] = {}
    for row, path in enumerate(table.audio_filepaths):
        parts = PurePosixPath(path).parts
        for start in range(len(parts)):
            tails.setdefault("/".join(parts[start:]), []).append(row)
    return tails


def _first_use(trials: TrialList, position: int) -> str:
    used = (trials.left == position) | (trials.right == position)
    return f"{trials.path}, row {trials.rows[int(used.argmax())]}"


def _absent(name: str, rows: list[int], source: object) -> str:
    if rows:
        return f"{name!r} is the end of {len(rows)} paths in {source}; write more of the path."
    return (
        f"{name!r} has no embedding in {source}: it is neither an id there, nor an id and an audio "
        "suffix, nor the end of a path. Extract it, or take the trial out."
    )
