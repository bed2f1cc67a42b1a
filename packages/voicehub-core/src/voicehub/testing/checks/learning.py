"""The recipe learns what is to be learned, and nothing where there is nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from voicehub.testing.case import ConformanceCase
from voicehub.testing.samples import draw_items
from voicehub.testing.training import make_trainer

_TRAIN, _UNSEEN = 32, 12


def learning(case: ConformanceCase, directory: Path) -> str:
    """Training lowers the loss of unseen samples; training on exchanged targets does not.

    The second run shows what the loss falls to when only the targets' frequencies are learnt.
    """
    items, unseen = draw_items(case, _TRAIN, 11), draw_items(case, _UNSEEN, 12)
    before, after = _train(case, items, unseen, directory / "true")
    _, shuffled = _train(case, case.shuffled(items, 13), unseen, directory / "shuffled")
    facts = f"{before:.4g} -> {after:.4g}, with shuffled targets {shuffled:.4g}"
    assert after <= case.learned_ratio * before, (
        f"the loss of unseen samples does not fall below {case.learned_ratio:g} of its start: "
        f"{facts}. More steps, or another rate, in the case's training?"
    )
    assert after <= case.shuffled_ratio * shuffled, (
        f"training on shuffled targets does as well ({facts}): does the loss see which target "
        "belongs to which input?"
    )
    return facts


def _train(
    case: ConformanceCase, items: Sequence[Any], unseen: Sequence[Any], directory: Path
) -> tuple[float, float]:
    settings: dict[str, Any] = {
        **case.LEARNING_DEFAULTS, "max_grad_norm": 1.0, "logging_steps": 1000, **case.training,
    }  # fmt: skip
    trainer = make_trainer(case, items, directory, eval_items=unseen, **settings)
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    return before, trainer.evaluate()["eval_loss"]
