"""What the tests of several processes run on every rank; a module, since it is imported there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from recipes import Frames, arguments, build, collate, seeded, trainer_for
from torch import Tensor, nn

from voicehub.trainer.trainer import Trainer

DTYPES = {"float64": torch.float64, "float32": torch.float32}


def make(
    recipe: str,
    directory: Path,
    *,
    size: int = 22,
    dtype: str = "float64",
    options: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Trainer:
    """A Trainer of a recipe of the contract's tests, or of ``lora`` or ``norm``."""
    data = Frames(size, dtype=DTYPES[dtype])
    if recipe in ("plain", "gan", "hybrid"):
        return _cast(trainer_for(recipe, directory, data=data, options=options, **settings), dtype)
    model = seeded({"lora": _lora, "norm": BatchNormed}[recipe])
    given = {"data_collator": collate, "train_dataset": data, **(options or {})}
    return _cast(Trainer(model=model, args=arguments(directory, **settings), **given), dtype)


def _cast(trainer: Trainer, dtype: str) -> Trainer:
    trainer.model.to(DTYPES[dtype])
    return trainer


class LowRank(nn.Module):
    """A frozen layer and a trained correction of low rank, as LoRA has it."""

    def __init__(self, frozen: nn.Linear) -> None:
        super().__init__()
        self.frozen = frozen.requires_grad_(False)
        self.down = nn.Linear(frozen.in_features, 2, bias=False, dtype=torch.float64)
        self.up = nn.Linear(2, frozen.out_features, bias=False, dtype=torch.float64)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        change: Tensor = self.up(self.down(x))
        return self.frozen(x) + change


def _lora() -> nn.Module:
    model, _ = build("plain")
    model.hidden, model.output = LowRank(model.hidden), LowRank(model.output)
    return model


class BatchNormed(nn.Module):
    """A regression whose statistics are those of a micro-batch, unused parameters included."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(3, 6, dtype=torch.float64)
        self.norm = nn.BatchNorm1d(6, dtype=torch.float64)
        self.output = nn.Linear(6, 1, dtype=torch.float64)
        self.never_used = nn.Linear(2, 2, dtype=torch.float64)

    def forward(self, features: Tensor, mask: Tensor, targets: Tensor) -> dict[str, Any]:
        hidden = self.norm(self.hidden(features).flatten(0, 1)).view(*features.shape[:2], 6)
        predictions = self.output(hidden).squeeze(-1)
        frames = mask.sum()
        loss = ((predictions - targets).square() * mask).sum() / frames
        return {"loss": loss, "num_items": frames, "logits": predictions}


def weights(trainer: Trainer) -> dict[str, Tensor]:
    """Whole weights and buffers by name."""
    whole, module = trainer.strategy.whole_tensor, trainer.graph.adapter.module
    found = {name: whole(p).clone() for name, p in module.named_parameters()}
    return {**found, **{name: b.clone() for name, b in module.named_buffers()}}


def result(trainer: Trainer) -> dict[str, Any]:
    """What runs are compared by."""
    rows = trainer.state.log_history
    losses = [(row["step"], row["loss"], row["grad_norm"]) for row in rows if "loss" in row]
    average = {}
    if trainer.averaging is not None:
        average = {k: v.clone() for k, v in trainer.averaging.state_dict()["shadows"].items()}
    return {
        "weights": weights(trainer),
        "average": average,
        "losses": losses,
        "steps": trainer.state.global_step,
        "skipped": trainer.state.skipped_steps,
        "rows": rows,
    }


def train(directory: Path, runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Train each run (keywords of ``make``) and return its ``result``."""
    found = []
    for number, run in enumerate(runs):
        trainer = make(directory=directory / str(number), **run)
        trainer.train(resume_from_checkpoint=None)
        found.append(result(trainer))
    return found
