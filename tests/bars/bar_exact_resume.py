"""Runs interrupted at random steps and resumed equal the uninterrupted ones, bit by bit."""

from __future__ import annotations

import json
import logging
import random
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from barkit import ROOT, Outcome, bar

INTERRUPTIONS = 30
STEPS = 24
WORKERS = (0, 1, 4)
TIMED = ("time", "second", "data_wait", "runtime")


@dataclass
class Case:
    """One kind of run: its recipe, settings, and what makes its data."""

    recipe: str
    settings: dict[str, Any] = field(default_factory=dict)
    draws: bool = False
    bucketed: bool = False
    evaluated: bool = False
    workers: tuple[int, ...] = (0,)


EVALUATED: dict[str, Any] = {"eval_strategy": "steps", "eval_steps": 4}
CASES = {
    "single phase": Case("plain"),
    "GAN, accumulating": Case("gan", {"gradient_accumulation_steps": 2}),
    "hybrid": Case("hybrid"),
    "EMA": Case("plain", {"ema_decay": 0.9, "eval_weights": "both", **EVALUATED}, evaluated=True),
    "plateau": Case("plain", {"lr_scheduler_type": "plateau", **EVALUATED}, evaluated=True),
    "length buckets": Case("plain", bucketed=True),
    "random data, 0/1/4 workers": Case("plain", draws=True, workers=WORKERS),
}


class GlobalDraws:
    """Draws from Python's, NumPy's and torch's global random state for every sample."""

    def __init__(self, frames: Any) -> None:
        self.frames = frames

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, index: int) -> dict[str, Any]:
        import numpy as np
        import torch

        item = dict(self.frames[index])
        shift = random.random() + np.random.rand() + torch.rand(())
        return {**item, "features": item["features"] + shift}


def build(case: Case, run: Path, stop: int | None = None, workers: int = 0) -> Any:
    """A Trainer of this case that is killed after step ``stop``."""
    import recipes

    from voicehub.data.plan import DurationBucketedPlan

    frames = recipes.Frames(22)
    options: dict[str, Any] = {}
    if stop is not None:
        options["callbacks"] = [recipes.StopAfter(stop)]
    if case.bucketed:
        durations = [float(len(item["targets"])) for item in frames.items]
        options["train_plan"] = DurationBucketedPlan(
            durations, max_padded_seconds=30.0, max_batch_size=6, seed=1, num_buckets=3
        )
    if case.evaluated:
        options["eval_dataset"] = recipes.Frames(5, seed=1)
    settings = {
        "max_steps": STEPS,
        "per_device_train_batch_size": 3,
        "save_strategy": "steps",
        "save_steps": 3,
        "save_total_limit": 2,
        "logging_steps": 2,
        "lr_scheduler_type": "cosine",
        "warmup_steps": 3,
        "dataloader_num_workers": workers,
        **case.settings,
    }
    data = GlobalDraws(frames) if case.draws else frames
    return recipes.trainer_for(
        case.recipe, run, data=data, options=options, dropout=0.2, **settings
    )


def outcome_of(trainer: Any) -> dict[str, Any]:
    """All that must be equal: state of every part, random states, and log rows but for times."""
    from voicehub.checkpoints.random_state import capture_random_state

    lines = (trainer.run_dir / "metrics.jsonl").read_text().splitlines()
    rows = [
        {key: value for key, value in json.loads(line).items() if not _tells_time(key)}
        for line in lines
    ]
    saved = trainer.run_dir / f"checkpoint-{STEPS}"
    return {
        "weights": trainer.adapter.state_dict(),
        "optimizers": trainer.graph.optimizers.state_dict(),
        "schedulers": trainer._run.schedulers.state_dict(),
        "runtime": _runtime(saved),
        "random": capture_random_state(),
        "rows": rows,
    }


def _runtime(saved: Path) -> Mapping[str, Any]:
    """Recipe and callbacks as the last checkpoint holds them, the averaged weights included."""
    from voicehub.checkpoints.reader import open_checkpoint

    return open_checkpoint(saved).runtime()


def _tells_time(key: str) -> bool:
    return any(word in key for word in TIMED)


@contextmanager
def quietly() -> Iterator[None]:
    logger = logging.getLogger("voicehub")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, of more workers than cores
            yield
    finally:
        logger.setLevel(before)


def interrupted(case: Case, run: Path, stop: int, rng: random.Random) -> Any:
    """Killed after ``stop``, then the same command again; the number of workers may change."""
    import recipes

    from voicehub.checkpoints.layout import latest_checkpoint

    try:
        build(case, run, stop, rng.choice(case.workers)).train()
    except recipes.Interrupt:
        pass
    else:
        raise RuntimeError(f"the run was not interrupted at step {stop}")
    again = build(case, run, workers=rng.choice(case.workers))
    again.train(resume_from_checkpoint=latest_checkpoint(run) is not None)
    return again


def differences(case: Case, scratch: Path) -> list[str]:
    """What differed, over all interruptions."""
    import recipes

    whole = build(case, scratch / "whole")
    whole.train()
    expected = outcome_of(whole)
    rng = random.Random(0)
    found = []
    for number in range(INTERRUPTIONS):
        stop = rng.randint(1, STEPS - 1)
        result = outcome_of(interrupted(case, scratch / f"cut-{number}", stop, rng))
        found += [
            f"{part} after an interruption at step {stop}"
            for part, value in expected.items()
            if not recipes.same(value, result[part])
        ]
    return found


@bar(
    "exact-resume",
    f"{INTERRUPTIONS} random interruptions each of {len(CASES)} kinds of runs: all bit-equal",
)
def exact_resume(scratch: Path) -> Outcome:
    sys.path.insert(0, str(ROOT / "tests" / "contract"))
    import torch

    torch.set_num_threads(1)
    found = {}
    with quietly():
        for number, (name, case) in enumerate(CASES.items()):
            found[name] = differences(case, scratch / str(number))
    wrong = {name: parts for name, parts in found.items() if parts}
    if wrong:
        name, parts = next(iter(wrong.items()))
        figure = f"{name}: {parts[0]}; {sum(map(len, wrong.values()))} differences in all"
    else:
        figure = f"{INTERRUPTIONS * len(CASES)} resumed runs bit-equal ({', '.join(CASES)})"
    return Outcome(figure, not wrong, found)
