"""Stand-ins for what the Trainer hands to its callbacks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.callbacks import TrainerCallback
from voicehub.trainer.state import TrainerControl, TrainerState


class Watched:
    """A run that fires events on one callback, as the Trainer does."""

    def __init__(self, callback: TrainerCallback, directory: Path, max_steps: int = 100) -> None:
        self.callback = callback
        self.args = TrainingArguments(output_dir=str(directory))
        self.state = TrainerState(max_steps=max_steps)
        self.control = TrainerControl()

    def fire(self, event: str, **context: Any) -> None:
        """Call one event."""
        getattr(self.callback, event)(self.args, self.state, self.control, **context)

    def log(self, step: int, **values: Any) -> None:
        """A log row at ``step``."""
        self.state.global_step = step
        row = {**values, "epoch": step / 10, "step": step}
        self.state.log_history.append(row)
        self.fire("on_log", logs=row)


@pytest.fixture
def watched(tmp_path: Path) -> Callable[..., Watched]:
    """Build a watched run in the temporary directory."""

    def build(callback: TrainerCallback, **options: Any) -> Watched:
        return Watched(callback, tmp_path / "run", **options)

    return build
