"""A small run whose uploads go to a hub on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
import torch
from torch import Tensor, nn

from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.trainer import Trainer
from voicehub_hf.hub.loopback import Hub, serve_hub

TOKEN = "hf_" + "LoopbackSecretOfTheTests"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A running hub that the environment points to; its gate is open."""
    with serve_hub() as state:
        monkeypatch.setenv("HF_ENDPOINT", state.url)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        # Large files by plain HTTP: the other protocol has servers of its own.
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        yield state


class Line(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(3, 1)

    def forward(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        """x (B, 3), y (B,)."""
        return {"loss": (self.line(x).squeeze(-1) - y).square().mean()}


class Points(torch.utils.data.Dataset[dict[str, Tensor]]):
    deterministic = True

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"x": torch.full((3,), float(index)), "y": torch.tensor(float(index))}


@pytest.fixture
def make_trainer(tmp_path: Path) -> Any:
    """``make_trainer(callbacks=..., **settings)``: a small run of 6 steps with 3 checkpoints."""

    def make(callbacks: Any = (), **settings: Any) -> Trainer:
        defaults: dict[str, Any] = {
            "output_dir": str(tmp_path / "run"),
            "use_cpu": True,
            "max_steps": 6,
            "save_steps": 2,
            "logging_steps": 1,
            "per_device_train_batch_size": 4,
            "learning_rate": 1e-3,
            "lr_scheduler_type": "constant",
        }
        torch.manual_seed(0)
        arguments = TrainingArguments(**{**defaults, **settings})
        return Trainer(
            model=Line(), args=arguments, train_dataset=Points(), callbacks=list(callbacks)
        )

    return make
