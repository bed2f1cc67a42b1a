"""Checkpoints that resume exactly, artifacts that reload."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from voicehub.adapters.context import TrainingContext
from voicehub.models.artifact import read_artifact
from voicehub.testing.case import ConformanceCase
from voicehub.testing.probe import SEED, split_batch
from voicehub.testing.samples import draw_items
from voicehub.testing.training import (
    differing,
    equal,
    listed,
    logged_losses,
    make_trainer,
    state_of,
)
from voicehub.trainer.composition import seed_everything

_STEPS, _SAVED_AT = 5, 2


def checkpoint(case: ConformanceCase, directory: Path) -> str:
    """A run resumed in the middle of an epoch is the run that never stopped (C5, C8)."""
    items = draw_items(case, 11, 6)
    options: dict[str, Any] = {
        "max_steps": _STEPS, "dropout": 0.1, "save_strategy": "steps", "save_steps": _SAVED_AT,
        "gradient_accumulation_steps": 1,
    }  # fmt: skip
    whole = make_trainer(case, items, directory / "run", **options)
    whole.train()
    seed_everything(SEED + 1)  # what a fresh process has instead
    again = make_trainer(case, items, directory / "run", **options)
    again.train(resume_from_checkpoint=str(directory / "run" / f"checkpoint-{_SAVED_AT}"))
    changed = differing(state_of(whole.adapter), state_of(again.adapter))
    assert not changed, f"the resumed run ends elsewhere: {listed(changed)}"
    assert equal(whole.adapter.recipe_state_dict(), again.adapter.recipe_state_dict()), (
        "the recipe's own state differs after a resume"
    )
    for route, optimizer in whole.graph.optimizers.optimizers.items():
        other = again.graph.optimizers.optimizers[route]
        assert equal(optimizer.state_dict(), other.state_dict()), (
            f"the optimizer state of {route!r} differs after a resume"
        )
    first, second = dict(logged_losses(whole)), dict(logged_losses(again))
    apart = [step for step in first if first[step] != second.get(step)]
    assert not apart, f"the resumed run logs other losses at steps {apart}"
    return f"saved at step {_SAVED_AT}, equal at step {_STEPS}"


def export(case: ConformanceCase, directory: Path) -> str:
    """``save_model()`` writes what loads elsewhere and computes the same, bit for bit (C6)."""
    trainer = make_trainer(case, draw_items(case, 8, 7), directory / "run", max_steps=2)
    trainer.train()
    target = trainer.save_model(directory / "artifact")
    artifact = read_artifact(target)
    assert artifact.model_type == case.model_type, (
        f"the artifact says model type {artifact.model_type!r}"
    )
    reloaded = case.reload(target)
    reloaded.setup()
    batch = case.collate(draw_items(case, 4, 8))
    ours, theirs = _outputs(trainer.adapter, batch), _outputs(reloaded, batch)
    compared = [key for key in ours if isinstance(ours[key], Tensor)]
    assert compared, "the prediction phase returns neither a loss nor logits"
    for key in compared:
        assert key in theirs, f"the reloaded model returns no {key}"
        assert equal(ours[key], theirs[key]), (
            f"{key} of the reloaded model differs by {_gap(ours[key], theirs[key]):.3g}"
        )
    names = sorted(path.name for path in target.iterdir())
    return f"equal {', '.join(compared)}; files {', '.join(names)}"


def _outputs(adapter: Any, batch: Any) -> dict[str, Any]:
    inputs, info, named = split_batch(batch)
    phase = adapter.select_phase(named) if named else adapter.select_evaluation_phase()
    adapter.eval_mode()
    context = TrainingContext(phase, inputs, None, None, False, info)
    return dict(adapter.execute_prediction_phase(context).items())


def _gap(first: Tensor, second: Tensor) -> float:
    if first.shape != second.shape:
        return float("nan")
    return float((first.double() - second.double()).abs().max())
