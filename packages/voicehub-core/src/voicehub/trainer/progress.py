"""What accumulates between two log rows: losses, items, seconds of audio, waiting, padding."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from voicehub.trainer.state import TrainerState
from voicehub.trainer.window import UpdateResult


class LogWindow:
    """Sums since the last log row.

    Losses and counts are part of the checkpoint, so that a resumed run logs bit-equal values;
    times are not, they describe this process.
    """

    def __init__(self) -> None:
        self._clear_sums()
        self._restart_clock()

    def _clear_sums(self) -> None:
        self.updates = 0
        self.loss = 0.0
        self.items = 0.0
        self.samples = 0
        self.audio_seconds = 0.0
        self.padded_seconds = 0.0
        self.grad_norm = 0.0
        self.components: dict[str, float] = {}
        self.component_updates: dict[str, int] = {}

    def _restart_clock(self) -> None:
        self.started = time.perf_counter()
        self.waited = 0.0
        self.clocked_audio = 0.0
        self.clocked_samples = 0

    def add(self, result: UpdateResult) -> None:
        """Count one update."""
        self.updates += 1
        self.loss += result.loss
        self.grad_norm = result.grad_norm
        if result.num_items is not None:
            self.items += result.num_items
        for name, value in result.components.items():
            self.components[name] = self.components.get(name, 0.0) + value
            self.component_updates[name] = self.component_updates.get(name, 0) + 1

    def add_batch(self, samples: int, info: Mapping[str, Any]) -> None:
        """Count one micro-batch."""
        self.samples += samples
        self.clocked_samples += samples
        if info:
            audio = float(info.get("audio_seconds", 0.0))
            self.audio_seconds += audio
            self.clocked_audio += audio
            self.padded_seconds += float(info.get("padded_seconds", 0.0))

    def flush(self) -> dict[str, float]:
        """The log row's values; starts the next window."""
        elapsed = max(time.perf_counter() - self.started, 1e-9)
        row = {"loss": self.loss / max(1, self.updates), "grad_norm": self.grad_norm}
        for name, value in self.components.items():
            # Not every phase is part of every update.
            row[f"loss/{name}"] = value / self.component_updates[name]
        if self.items:
            row["num_items"] = self.items
        row["samples_per_second"] = self.clocked_samples / elapsed
        row["data_wait"] = min(1.0, self.waited / elapsed)
        if self.audio_seconds:
            row["audio_per_second"] = self.clocked_audio / elapsed
        if self.padded_seconds:
            row["padding_waste"] = max(0.0, 1.0 - self.audio_seconds / self.padded_seconds)
        self._clear_sums()
        self._restart_clock()
        return row

    def state_dict(self) -> dict[str, Any]:
        """The sums, as JSON values (floats survive JSON bit for bit)."""
        names = ("updates", "loss", "items", "samples", "audio_seconds", "padded_seconds")
        own = {name: getattr(self, name) for name in names}
        return {
            **own,
            "grad_norm": self.grad_norm,
            "components": dict(self.components),
            "component_updates": dict(self.component_updates),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the sums and start the clock anew."""
        for name, value in state.items():
            setattr(self, name, value)
        self._restart_clock()


def run_metrics(
    state: TrainerState, *, seconds: float, first_step: int, samples: int
) -> dict[str, float]:
    """Speed of what this process did of a run, and the mean loss of the whole run."""
    seconds = max(seconds, 1e-9)
    return {
        "train_runtime": seconds,
        "train_steps_per_second": (state.global_step - first_step) / seconds,
        "train_samples_per_second": samples / seconds,
        "train_loss": state.loss_total / max(1, state.global_step),
    }
