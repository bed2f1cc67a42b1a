"""Rates in a run: by group at the start, at the end of the warm-up and at the end."""

from __future__ import annotations

from typing import Any

import pytest

from voicehub.trainer.callbacks import TrainerCallback


class Rates(TrainerCallback):
    """The rates that each update used, by group."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def on_pre_optimizer_step(self, *_: Any, **context: Any) -> None:
        groups = context["optimizers"]["default"].param_groups
        self.rows.append({group["name"]: group["lr"] for group in groups})


def test_every_group_follows_the_schedule_from_its_own_rate(toy: Any) -> None:
    rates = Rates()
    trainer = toy.run(
        max_steps=10,
        learning_rate=0.1,
        weight_decay=0.01,
        lr_scheduler_type="linear",
        warmup_steps=4,
        param_groups=[{"pattern": "hidden", "lr_scale": 0.1}],
        trainer={"callbacks": [rates]},
    )
    optimizer = trainer.graph.optimizers["default"]
    owners = [id(p) for group in optimizer.param_groups for p in group["params"]]
    assert sorted(owners) == sorted(id(p) for p in trainer.model.parameters())
    bases = {group["name"]: group["initial_lr"] for group in optimizer.param_groups}
    assert sorted(bases.values()) == pytest.approx([0.01, 0.01, 0.1, 0.1])
    assert len(rates.rows) == 10
    for update, factor in ((0, 0.0), (2, 0.5), (4, 1.0), (7, 0.5), (9, 1 / 6)):
        for name, base in bases.items():
            assert rates.rows[update][name] == pytest.approx(base * factor), (update, name)
    assert trainer._run is not None  # the update that would follow is at zero
    assert all(group["lr"] == 0.0 for group in optimizer.param_groups)


def test_the_milestones_of_a_run(toy: Any) -> None:
    rates = Rates()
    toy.run(
        max_steps=6,
        learning_rate=0.1,
        lr_scheduler_type="multistep",
        lr_scheduler_kwargs={"milestones": [3, 5]},
        lr_scheduler_gamma=0.5,
        warmup_steps=2,
        trainer={"callbacks": [rates]},
    )
    used = [next(iter(row.values())) for row in rates.rows]
    assert used == pytest.approx([0.0, 0.05, 0.1, 0.05, 0.05, 0.025])
