"""``metrics.jsonl``: every log row of a run as one JSON object a line, flushed as it comes."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.callbacks import TrainerCallback
from voicehub.trainer.state import TrainerControl, TrainerState

METRICS_FILE = "metrics.jsonl"
PREVIOUS_FILE = "metrics.previous.jsonl"


class JsonlCallback(TrainerCallback):
    """Appends log rows to ``<output_dir>/metrics.jsonl``.

    On a resume, rows newer than the resumed step are dropped (their updates are made again), and
    so is a last line that a killed process left torn: the file then reads as that of a run that
    was never interrupted. A run that starts anew keeps the file of the run before it as
    ``metrics.previous.jsonl``.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._file: IO[str] | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Open the file, cut back to the step that training starts from."""
        if not state.is_world_process_zero:
            return
        path = self._resolved(args)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            if state.global_step == 0:
                path.replace(path.with_name(PREVIOUS_FILE))
            else:
                _cut_back(path, state.global_step)
        self._close()
        self._file = path.open("a", encoding="utf-8")

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Write one row; evaluation outside of training opens the file as needed."""
        logs: Mapping[str, Any] = context.get("logs") or {}
        if not state.is_world_process_zero or not logs:
            return
        if self._file is None:
            path = self._resolved(args)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a", encoding="utf-8")
        row = {"step": state.global_step, "time": round(time.time(), 3)}
        row.update({key: _number(value) for key, value in logs.items()})
        self._file.write(json.dumps(row, allow_nan=False) + "\n")
        self._file.flush()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Close the file; rows logged later (a final evaluation) open it again."""
        self._close()

    def _resolved(self, args: TrainingArguments) -> Path:
        return self.path or Path(args.output_dir) / METRICS_FILE

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
    return list(_rows(path.read_text(encoding="utf-8", errors="replace")))


def _rows(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            yield {key: _parsed(value) for key, value in row.items()}


def _cut_back(path: Path, step: int) -> None:
    """Keep whole rows up to ``step``; replaced in one move, so a crash here loses nothing."""
    kept = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and row.get("step", 0) <= step:
            kept.append(line)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
    temporary.replace(path)


def _number(value: Any) -> Any:
    """JSON has no NaN and no infinity: those become the texts 'nan', 'inf' and '-inf'."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _parsed(value: Any) -> Any:
    return float(value) if value in ("nan", "inf", "-inf") else value
