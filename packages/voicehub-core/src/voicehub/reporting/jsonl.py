"""``metrics.jsonl``: every log row of a run as one JSON object a line, flushed as it comes."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.callbacks import TrainerCallback
from voicehub.trainer.state import TrainerControl, TrainerState

METRICS_FILE = "metrics.jsonl"
PREVIOUS_FILE = "metrics.previous.jsonl"
ALERT = "alert"


class JsonlReporter(TrainerCallback):
    """Appends log rows to ``<output_dir>/metrics.jsonl``, each with its step and the time.

    On a resume the file is brought back to what the checkpoint remembers: rows of updates that
    are made again are dropped, and so is a last line that a killed process left torn. It then
    reads as that of a run that was never interrupted. A run that starts anew keeps the file of
    the run before it as ``metrics.previous.jsonl``.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._file: IO[str] | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Open the file, brought back to the step that training starts from."""
        if not state.is_world_process_zero:
            return
        self._close()
        path = self._resolved(args)
        if state.global_step or state.log_history:
            _bring_back(path, state)
        elif path.exists():
            path.replace(path.with_name(PREVIOUS_FILE))
        self._file = self._opened(path)

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Write one row."""
        if state.is_world_process_zero and context.get("logs"):
            self._write(args, state, context["logs"])

    def on_alert(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Write a health alert as a row of its own."""
        if state.is_world_process_zero:
            self._write(args, state, {ALERT: str(context.get("alert"))})

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Close the file; a row that comes later (a final evaluation) opens it again."""
        self._close()

    def on_train_error(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Close the file."""
        self._close()

    def _write(self, args: TrainingArguments, state: TrainerState, logs: Mapping[str, Any]) -> None:
        if self._file is None:
            self._file = self._opened(self._resolved(args))
        self._file.write(_line({"step": state.global_step, "time": round(time.time(), 3), **logs}))
        self._file.flush()

    def _resolved(self, args: TrainingArguments) -> Path:
        return self.path or Path(args.output_dir) / METRICS_FILE

    @staticmethod
    def _opened(path: Path) -> IO[str]:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("a", encoding="utf-8")

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of a metrics file; numbers that are not finite are floats again.

    A torn last line is left out. A missing file has no rows.
    """
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8", errors="replace")
    return [{key: _parsed(value) for key, value in row.items()} for row in _rows(text)]


def _bring_back(path: Path, state: TrainerState) -> None:
    """Rewrite the file to hold exactly the rows of ``state.log_history``, in one move."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    lines = [_line(row) for row in _remembered(list(_rows(text)), state)]
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text("".join(lines), encoding="utf-8")
    temporary.replace(path)


def _remembered(
    rows: Sequence[Mapping[str, Any]], state: TrainerState
) -> Iterator[Mapping[str, Any]]:
    """Rows of the file that the history confirms, and those of the history that it lacks.

    Alerts are no part of the history; those up to the resumed step stay where they were.
    """
    history = list(state.log_history)
    position = 0
    for row in rows:
        if ALERT in row:
            if row.get("step", 0) <= state.global_step:
                yield row
        elif position < len(history) and _same(row, history[position]):
            position += 1
            yield row
    yield from history[position:]


def _same(row: Mapping[str, Any], logged: Mapping[str, Any]) -> bool:
    written = {"time": row.get("time"), **logged}
    return row.get("step") == logged.get("step") and row.keys() == written.keys() | {"step"}


def _rows(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        row = _object(line)
        if row is not None:
            yield row


def _object(line: str) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def _line(row: Mapping[str, Any]) -> str:
    values = {key: _number(value) for key, value in row.items()}
    return json.dumps(values, allow_nan=False, ensure_ascii=False, default=str) + "\n"


def _number(value: Any) -> Any:
    """JSON has no NaN and no infinity: those become the texts 'nan', 'inf' and '-inf'."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _parsed(value: Any) -> Any:
    return float(value) if value in ("nan", "inf", "-inf") else value
