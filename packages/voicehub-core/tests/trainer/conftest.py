"""Small models and data with unequal lengths, and a runner, shared by the Trainer's tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.trainer import Trainer


class FrameRegressor(nn.Module):
    """Mean squared error over valid frames, with the number of frames as ``num_items``."""

    def __init__(self, *, count_items: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        self.hidden = nn.Linear(3, 8)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(8, 1)
        self.count_items = count_items

    def forward(self, features: Tensor, mask: Tensor, targets: Tensor) -> dict[str, Any]:
        """features (B, T, 3), mask (B, T) bool, targets (B, T)."""
        predictions = self.output(self.dropout(torch.tanh(self.hidden(features)))).squeeze(-1)
        errors = (predictions - targets).square() * mask
        frames = mask.sum()
        output = {"loss": errors.sum() / frames, "logits": predictions}
        return {**output, "num_items": frames} if self.count_items else output


class Frames(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Utterances of 1 to 12 frames; a function of the seed."""

    deterministic = True

    def __init__(self, size: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> None:
        generator = torch.Generator().manual_seed(seed)
        lengths = torch.randint(1, 13, (size,), generator=generator).tolist()
        self.items = [
            {
                "features": torch.randn(n, 3, generator=generator, dtype=dtype),
                "targets": torch.randn(n, generator=generator, dtype=dtype),
            }
            for n in lengths
        ]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return self.items[index]


def collate_frames(items: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    pad = nn.utils.rnn.pad_sequence
    lengths = torch.tensor([len(item["targets"]) for item in items])
    return {
        "features": pad([item["features"] for item in items], batch_first=True),
        "targets": pad([item["targets"] for item in items], batch_first=True),
        "mask": torch.arange(int(lengths.max()))[None] < lengths[:, None],
    }


def weights(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def distance(
    first: dict[str, Tensor], second: dict[str, Tensor], start: dict[str, Tensor]
) -> float:
    """||dw - dw'|| / ||dw||, over all tensors, in float64."""

    def flat(state: dict[str, Tensor]) -> Tensor:
        return torch.cat([(state[n] - start[n]).double().flatten() for n in sorted(start)])

    a, b = flat(first), flat(second)
    assert float(a.norm()) > 0
    return float((a - b).norm() / a.norm())


@pytest.fixture
def toy(tmp_path: Path) -> SimpleNamespace:
    """The helpers above, and ``run(...)``, which trains a seeded FrameRegressor."""
    runs = iter(range(1000))

    def arguments(**settings: Any) -> TrainingArguments:
        defaults: dict[str, Any] = {
            "output_dir": str(tmp_path / f"run-{next(runs)}"),
            "use_cpu": True,
            "save_strategy": "no",
            "logging_steps": 1,
            "lr_scheduler_type": "constant",
            "learning_rate": 0.01,
        }
        return TrainingArguments(**{**defaults, **settings})

    def run(
        *,
        model: nn.Module | None = None,
        train: Any = None,
        dtype: torch.dtype = torch.float32,
        trainer: dict[str, Any] | None = None,
        prepare: Callable[[Trainer], None] | None = None,
        resume: Any = None,
        **settings: Any,
    ) -> Trainer:
        torch.manual_seed(0)
        model = FrameRegressor().to(dtype) if model is None else model
        data = Frames(11, dtype=dtype) if train is None else train
        options = {"data_collator": collate_frames, "train_dataset": data, **(trainer or {})}
        built = Trainer(model=model, args=arguments(**settings), **options)
        if prepare is not None:
            prepare(built)
        built.train(resume_from_checkpoint=resume)
        return built

    return SimpleNamespace(
        arguments=arguments,
        run=run,
        Frames=Frames,
        FrameRegressor=FrameRegressor,
        collate=collate_frames,
        weights=weights,
        distance=distance,
        path=tmp_path,
    )
