"""Short training runs of a case, through the Trainer itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from voicehub.testing.probe import SEED, build_adapter, cast_floats
from voicehub.testing.samples import CaseDataset
from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.trainer import Trainer

if TYPE_CHECKING:
    from voicehub.adapters.base import TrainingAdapter
    from voicehub.testing.case import ConformanceCase

SETTINGS: dict[str, Any] = {
    "use_cpu": True,
    "seed": SEED,
    "save_strategy": "no",
    "logging_steps": 1,
    "per_device_train_batch_size": 4,
    "per_device_eval_batch_size": 4,
    "learning_rate": 1e-3,
    "lr_scheduler_type": "constant",
    "max_grad_norm": 0.0,
}


class CastingCollator:
    """The case's collator, with floating tensors in one precision."""

    deterministic = True

    def __init__(self, case: ConformanceCase, dtype: torch.dtype) -> None:
        self.case = case
        self.dtype = dtype

    def __call__(self, items: Sequence[Any]) -> Any:
        batch = self.case.collate(items)
        return batch if self.dtype is torch.float32 else cast_floats(batch, self.dtype)


def make_trainer(
    case: ConformanceCase,
    items: Sequence[Any],
    directory: Path,
    *,
    eval_items: Sequence[Any] | None = None,
    dropout: float = 0.0,
    dtype: torch.dtype = torch.float32,
    callbacks: Sequence[Any] = (),
    adapter: TrainingAdapter | None = None,
    **settings: Any,
) -> Trainer:
    """Return a Trainer over a freshly built adapter, or the one given."""
    adapter = adapter or build_adapter(case, dropout=dropout, dtype=dtype)
    return Trainer(
        model=adapter.model,
        training_adapter=adapter,
        args=TrainingArguments(**{**SETTINGS, "output_dir": str(directory), **settings}),
        train_dataset=CaseDataset(items),
        eval_dataset=None if eval_items is None else CaseDataset(eval_items),
        data_collator=CastingCollator(case, dtype),
        callbacks=list(callbacks),
    )


def state_of(adapter: TrainingAdapter) -> dict[str, Tensor]:
    """Return copies of all parameters and buffers."""
    state = {name: p.detach().clone() for name, p in adapter.module.named_parameters()}
    state.update((name, b.detach().clone()) for name, b in adapter.module.named_buffers())
    return state


def differing(first: dict[str, Tensor], second: dict[str, Tensor]) -> list[str]:
    """Return the names of tensors that are not bit-identical."""
    return [name for name, value in first.items() if not equal(value, second[name])]


def equal(first: Any, second: Any) -> bool:
    """Whether two nested values are identical, tensors bit for bit (NaN equals NaN)."""
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        if first.shape != second.shape or first.dtype != second.dtype:
            return False
        same = first == second
        if first.is_floating_point():
            same |= first.isnan() & second.isnan()
        return bool(same.all())
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(equal(first[k], second[k]) for k in first)
    if isinstance(first, (list, tuple)) and isinstance(second, (list, tuple)):
        return len(first) == len(second) and all(map(equal, first, second))
    if hasattr(first, "dtype") and hasattr(first, "tolist"):
        return bool(getattr(second, "dtype", None) == first.dtype and (first == second).all())
    return bool(first == second)


def logged_losses(trainer: Trainer) -> list[tuple[int, float]]:
    """Return (step, loss) of every logged update."""
    return [(row["step"], row["loss"]) for row in trainer.state.log_history if "loss" in row]


def listed(names: Sequence[str], limit: int = 4) -> str:
    """Return a few names for a message."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
