"""C5: a resumed run is the run that was never interrupted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from recipes import (
    DTYPE,
    Frames,
    Interrupt,
    StopAfter,
    same,
    trainer_for,
    weights,
)

from voicehub.data.plan import DurationBucketedPlan
from voicehub.trainer.trainer import Trainer

SAVING = {"save_strategy": "steps", "save_steps": 1}


class GlobalDraws(Frames):
    """Draws from torch's, NumPy's and Python's global random state."""

    deterministic = False

    def __getitem__(self, index: int) -> dict[str, Any]:
        import random

        import numpy as np

        item = super().__getitem__(index)
        noise = torch.rand((), dtype=DTYPE) + np.random.rand() + random.random()
        return {**item, "features": item["features"] + noise}


RUNS: dict[str, Callable[..., Trainer]] = {
    "plain, accumulated": lambda d, **s: trainer_for(
        "plain", d, dropout=0.3, gradient_accumulation_steps=3, per_device_train_batch_size=2, **s
    ),
    "gan, accumulated": lambda d, **s: trainer_for(
        "gan", d, dropout=0.3, gradient_accumulation_steps=2, per_device_train_batch_size=3, **s
    ),
    "hybrid": lambda d, **s: trainer_for("hybrid", d, dropout=0.3, **s),
    "average": lambda d, **s: trainer_for("gan", d, dropout=0.3, ema_decay=0.7, **s),
    "freeze schedule": lambda d, **s: trainer_for(
        "hybrid", d, freeze=[{"pattern": "encoder.bias", "from_step": 1, "until_step": 4}], **s
    ),
    "plateau": lambda d, **s: trainer_for(
        "plain",
        d,
        options={"eval_dataset": Frames(3, seed=1)},
        lr_scheduler_type="plateau",
        lr_scheduler_kwargs={"patience": 0, "threshold": 0.9},
        eval_strategy="steps",
        eval_steps=1,
        **s,
    ),
    "bucketed": lambda d, **s: trainer_for(
        "plain",
        d,
        options={
            "train_plan": DurationBucketedPlan(
                [float(len(item["targets"])) for item in Frames(22).items],
                max_padded_seconds=30.0,
                max_batch_size=4,
                seed=1,
                num_buckets=3,
            )
        },
        **s,
    ),
    "global randomness": lambda d, **s: trainer_for("plain", d, data=GlobalDraws(22), **s),
}
TIMED = ("time", "samples_per_second", "data_wait", "eval_runtime", "eval_samples_per_second")


def outcome(trainer: Trainer) -> Any:
    """Weights, optimizer state, recipe state, averages, and logged rows but for the clock."""
    rows = [
        {k: v for k, v in json.loads(line).items() if k not in TIMED}
        for line in (trainer.run_dir / "metrics.jsonl").read_text().splitlines()
    ]
    averaging = {} if trainer.averaging is None else trainer.averaging.state_dict()
    adapter = trainer.graph.adapter
    optimizers = trainer.graph.optimizers.state_dict()
    return [weights(trainer), optimizers, adapter.recipe_state_dict(), averaging, rows]


@pytest.mark.parametrize("stop", [2, 4, 5])
@pytest.mark.parametrize("kind", RUNS)
def test_C5_the_resumed_run_is_the_uninterrupted_one(tmp_path: Path, kind: str, stop: int) -> None:
    settings = {**SAVING, "max_steps": 6, "logging_steps": 2}
    whole = RUNS[kind](tmp_path / "whole", **settings)
    whole.train()
    accumulated = whole.args.gradient_accumulation_steps > 1
    killed = RUNS[kind](tmp_path / "killed", **settings)
    killed.add_callback(StopAfter(stop, inside=accumulated))
    with pytest.raises(Interrupt):
        killed.train()
    resumed = RUNS[kind](tmp_path / "killed", **settings)
    resumed.train(resume_from_checkpoint=True)
    for one, other in zip(outcome(whole), outcome(resumed), strict=True):
        assert same(one, other)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("workers", [1, 4])
def test_C5_with_any_number_of_workers(tmp_path: Path, workers: int) -> None:
    settings = {**SAVING, "max_steps": 4, "per_device_train_batch_size": 4}
    whole = trainer_for("plain", tmp_path / "whole", data=GlobalDraws(22), **settings)
    whole.train()
    killed = trainer_for("plain", tmp_path / "killed", data=GlobalDraws(22), **settings)
    killed.add_callback(StopAfter(2))
    with pytest.raises(Interrupt):
        killed.train()
    settings["dataloader_num_workers"] = workers
    resumed = trainer_for("plain", tmp_path / "killed", data=GlobalDraws(22), **settings)
    resumed.train(resume_from_checkpoint=True)
    assert same(outcome(whole)[:2], outcome(resumed)[:2])
