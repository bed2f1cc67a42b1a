"""A small run for the tests of reporters, and silence for the libraries they report to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def report_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """``report_run(**settings, resume=..., callbacks=...)`` trains 4 steps and returns the Trainer.

    Evaluated at 2 and 4 on the splits ``dev`` and ``dev_other``; audio, a picture and a text are
    logged at each evaluation; a checkpoint is saved at 2 and 4.
    """
    torch = pytest.importorskip("torch")
    from voicehub.trainer.arguments import TrainingArguments
    from voicehub.trainer.callbacks import TrainerCallback
    from voicehub.trainer.media import Audio, Image, Text
    from voicehub.trainer.trainer import Trainer

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    class Line(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = torch.nn.Linear(3, 1)

        def forward(self, x: Any, y: Any) -> dict[str, Any]:
            return {"loss": (self.line(x).squeeze(-1) - y).square().mean()}

    class Points(torch.utils.data.Dataset):
        deterministic = True

        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> dict[str, Any]:
            return {"x": torch.full((3,), index / 8), "y": torch.tensor(float(index))}

    class Shows(TrainerCallback):
        def on_evaluate(self, *_: Any, **context: Any) -> None:
            media = {
                "eval/sample": Audio(torch.linspace(-0.5, 0.5, 800), 8000),
                "eval/mel": Image.of_matrix(torch.arange(12.0).reshape(3, 4)),
                "eval/text": Text("a <b> transcript"),
            }
            context["trainer"].log_media(media)

    def run(resume: Any = None, callbacks: Any = (), **settings: Any) -> Trainer:
        defaults: dict[str, Any] = {
            "output_dir": str(tmp_path / "run"),
            "run_name": "toy",
            "use_cpu": True,
            "max_steps": 4,
            "logging_steps": 1,
            "eval_strategy": "steps",
            "eval_steps": 2,
            "save_steps": 2,
            "per_device_train_batch_size": 2,
            "learning_rate": 0.01,
            "lr_scheduler_type": "constant",
        }
        torch.manual_seed(0)
        trainer = Trainer(
            model=Line(),
            args=TrainingArguments(**{**defaults, **settings}),
            train_dataset=Points(),
            eval_dataset={"dev": Points(), "dev_other": Points()},
            callbacks=[*callbacks, Shows()],
        )
        trainer.train(resume_from_checkpoint=resume)
        return trainer

    return run
