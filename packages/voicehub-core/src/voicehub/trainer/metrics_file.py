"""``metrics.jsonl``: every log row of a run as one JSON object a line, flushed as it comes."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.callbacks import TrainerCallback
from voicehub.trainer.state import TrainerControl, TrainerState

METRICS_FILE = "metrics.jsonl"
PREVIOUS_FILE = "metrics.previous.jsonl"


class MetricsFile(TrainerCallback):
    """Appends log rows to ``<output_dir>/metrics.jsonl``; every Trainer has one.

    On a resume the file is rewritten from the rows that the checkpoint knows (later updates are
    made again), so that it reads as that of a run that was never interrupted. A run that starts
    anew keeps the file of the run before it as ``metrics.previous.jsonl``.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._file: IO[str] | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Open the file, cut back to the rows that training starts from."""
        if not state.is_world_process_zero:
            return
        self._close()
        path = self._resolved(args)
        if context.get("resumed_from") is not None:
            _replace_text(path, "".join(_line(row) for row in state.log_history))
        elif path.exists():
            path.replace(path.with_name(PREVIOUS_FILE))
        self._open(args)

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Write one row; evaluation outside of training opens the file as needed."""
        if not state.is_world_process_zero:
            return
        file = self._file or self._open(args)
        file.write(_line(context["logs"]))
        file.flush()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Close the file; rows logged later (a final evaluation) open it again."""
        self._close()

    def on_train_error(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Close the file: nothing in a run directory stays open after training."""
        with contextlib.suppress(OSError):  # a full disk; the error to tell of is another
            self._close()

    def _resolved(self, args: TrainingArguments) -> Path:
        return self.path or Path(args.output_dir) / METRICS_FILE

    def _open(self, args: TrainingArguments) -> IO[str]:
        path = self._resolved(args)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8")
        return self._file

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of a metrics file; numbers that are not finite are floats again.

    A torn last line is left out. A missing file has no rows.
    """
    if not path.exists():
        return []
    return list(_rows(path.read_text(encoding="utf-8", errors="replace")))


def _rows(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            yield {key: _parsed(value) for key, value in row.items()}


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps({k: _number(v) for k, v in row.items()}, allow_nan=False) + "\n"


def _replace_text(path: Path, text: str) -> None:
    """Replaced in one move, so that a crash here loses nothing; what it leaves is used next."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def _number(value: Any) -> Any:
    """JSON has no NaN and no infinity: those become the texts 'nan', 'inf' and '-inf'."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _parsed(value: Any) -> Any:
    return float(value) if value in ("nan", "inf", "-inf") else value
