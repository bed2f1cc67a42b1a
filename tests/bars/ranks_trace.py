"""A profiler trace of updates of asr-ctc's tiny model on a rank, and how messages lie in it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from voicehub.cli.compose import compose_preset
from voicehub.cli.run_request import RunRequest
from voicehub.cli.training_run import build_experiment
from voicehub.cli.validate import validate_run
from voicehub.strategies import gradient_sums
from voicehub.strategies.local_link import SWITCH
from voicehub.trainer.callbacks import TrainerCallback
from voicehub.trainer.trainer import Trainer

_BACKWARD = "autograd::engine::evaluate_function"
#: What the profiler calls the way of gradients: gloo's own messages, and what ``named`` marks.
_MESSAGES = ("gloo:all_reduce", "voicehub:shared_memory")


class Profiled(TrainerCallback):
    """Profiles the updates after the first two."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])

    def on_step_end(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        if state.global_step == 2:
            self.profiler.start()

    def on_train_end(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        self.profiler.stop()
        self.profiler.export_chrome_trace(str(self.path))


def named(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose time is found in a trace."""

    def run(*arguments: Any) -> Any:
        with torch.profiler.record_function(_MESSAGES[1]):
            return function(*arguments)

    return run


def trace(directory: Path, overrides: list[str], link: bool) -> float:
    """Train asr-ctc/tiny and return the share of messages' time inside of backwards.

    In shared memory that is the time of copies and sums; gloo's messages take until all ranks have
    sent theirs.

    Args:
        directory: where the trace goes.
        overrides: of the preset.
        link: whether gradients go through shared memory; a world has it or not from its start.
    """
    os.environ[SWITCH] = "on" if link else "off"
    gradient_sums.SharedMemorySums.send = named(gradient_sums.SharedMemorySums.send)
    gradient_sums._summed = named(gradient_sums._summed)
    path = directory / f"trace-{os.environ['RANK']}.json"
    composition = compose_preset("asr-ctc/tiny", overrides)
    spec, config = validate_run(composition)
    experiment = build_experiment(RunRequest(composition, spec, config, {}, json_mode=False))
    trainer = Trainer(
        model=experiment.model,
        args=config.training,
        data_collator=experiment.data_collator,
        train_dataset=experiment.train_dataset,
        training_adapter=experiment.adapter,
        train_plan=experiment.train_plan,
        callbacks=[Profiled(path)],
    )
    trainer.train()
    return share(json.loads(path.read_text())["traceEvents"])


def share(events: list[dict[str, Any]]) -> float:
    """Time of messages inside of backwards, of their whole time."""
    spans = [e for e in events if e.get("ph") == "X" and "dur" in e]
    steps = merged([span(e) for e in spans if e["name"].startswith(_BACKWARD)], gap=2000.0)
    messages = [span(e) for e in spans if e["name"] in _MESSAGES]
    total = sum(end - start for start, end in messages)
    inside = sum(
        max(0.0, min(end, last) - max(start, first))
        for start, end in messages
        for first, last in steps
    )
    return inside / total if total else 0.0


def span(event: dict[str, Any]) -> tuple[float, float]:
    """Start and end in microseconds."""
    return event["ts"], event["ts"] + event["dur"]


def merged(spans: list[tuple[float, float]], gap: float) -> list[tuple[float, float]]:
    """Spans with less than ``gap`` microseconds between them as one: a whole backward."""
    found: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if found and start - found[-1][1] < gap:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found
