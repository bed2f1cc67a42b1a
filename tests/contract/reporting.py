"""A reporter that keeps what it is told, and how one takes the place of the installed ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from voicehub.trainer import reporters
from voicehub.trainer.media import Media
from voicehub.trainer.metrics_file import read_metrics
from voicehub.trainer.reporter import Reporter
from voicehub.trainer.trainer import Trainer


class Notebook(Reporter):
    """Runs opened and closed, numbers by step, media by name."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str | None] = []
        self.closed: list[bool] = []
        self.scalars: list[tuple[int, dict[str, float]]] = []
        self.media: dict[str, Media] = {}

    def open_run(self, args: Any, state: Any, run_id: str | None, **context: Any) -> str:
        self.opened.append(run_id)
        return run_id or "the-run"

    def write_scalars(self, values: Mapping[str, float], step: int) -> None:
        self.scalars.append((step, dict(values)))

    def write_media(self, media: Mapping[str, Media], step: int) -> None:
        self.media.update(media)

    def close_run(self, *, failed: bool) -> None:
        self.closed.append(failed)


def plant(monkeypatch: pytest.MonkeyPatch, **factories: Callable[[Any], Any]) -> None:
    """Make these the reporters that are installed."""
    monkeypatch.setattr(reporters.loading, "names", lambda group: tuple(factories))
    monkeypatch.setattr(reporters.loading, "load", lambda group, name: factories[name])


def alerts(trainer: Trainer) -> list[str]:
    """The alerts in the metrics file of a run, each by name and advice."""
    rows = read_metrics(trainer.run_dir / "metrics.jsonl")
    return [row["alert"] for row in rows if "alert" in row]
