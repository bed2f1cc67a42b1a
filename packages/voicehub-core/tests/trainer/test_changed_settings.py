"""Differences of resume signatures have the names that a user has written."""

from __future__ import annotations

from voicehub.checkpoints.signature import Difference
from voicehub.trainer.changed_settings import described

GROUP = "optimization.optimizers.default.groups[0]"


def test_a_setting_is_named_once_with_what_it_decides() -> None:
    rate = Difference(f"{GROUP}.initial_lr", 0.1, 0.2)
    seeds = [Difference(path, 1, 2) for path in ("data.plan.seed", "data.seed", "seed")]
    lines = described(
        [*seeds, rate],
        {"learning_rate": 0.1, "seed": 1, "data_seed": None},
        {"learning_rate": 0.2, "seed": 2, "data_seed": None},
    )
    assert lines == [
        "training.seed: checkpoint=1, current=2"
        "\n      resume_signature.data.plan.seed: checkpoint=1, current=2"
        "\n      resume_signature.data.seed: checkpoint=1, current=2"
        "\n      resume_signature.seed: checkpoint=1, current=2",
        "training.learning_rate: checkpoint=0.1, current=0.2"
        f"\n      resume_signature.{GROUP}.initial_lr: checkpoint=0.1, current=0.2",
    ]


def test_what_is_decided_elsewhere_keeps_its_internal_name() -> None:
    same = {"learning_rate": 0.1}
    rate, recipe = Difference(f"{GROUP}.initial_lr", 0.1, 0.2), Difference("recipe.width", 4, 8)
    assert described([rate, recipe], same, same) == [
        f"resume_signature.{GROUP}.initial_lr: checkpoint=0.1, current=0.2",
        "resume_signature.recipe.width: checkpoint=4, current=8",
    ]
