"""A run that a test kills: trains a small model with keyed noise and dropout, resuming by itself.

Usage: training_script.py RUN_DIR WORKERS. Prints one line after every event that a kill may follow.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from voicehub import Trainer, TrainerCallback, TrainingArguments
from voicehub.checkpoints.layout import latest_checkpoint
from voicehub.data.keyed_random import numpy_generator


class NoisyPoints:
    """Points on a plane, moved by noise that is keyed by sample, epoch and draw."""

    def __len__(self) -> int:
        return 37

    def get_item(self, index: int, key: Any) -> dict[str, Any]:
        x = torch.linspace(-1, 1, 4) * (index + 1) / 37
        noise = torch.from_numpy(numpy_generator(*key, "noise").normal(size=4)).float()
        return {"x": x + 0.1 * noise, "y": x.sum()}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Dropout(0.2), nn.Linear(32, 1))

    def forward(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        return {"loss": (self.layers(x).squeeze(-1) - y).square().mean()}


class Announce(TrainerCallback):
    """Tells the test where the run stands, before and after every save."""

    def on_step_end(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        print("step", state.global_step, flush=True)

    def on_save(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        print("save", state.global_step, flush=True)

    def on_checkpoint_saved(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        print("saved", state.global_step, flush=True)


def main() -> None:
    run_dir, workers = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    trainer = Trainer(
        model_init=Net,
        args=TrainingArguments(
            output_dir=str(run_dir),
            max_steps=60,
            per_device_train_batch_size=3,
            gradient_accumulation_steps=2,
            learning_rate=0.01,
            logging_steps=3,
            eval_strategy="steps",
            eval_steps=2,
            save_steps=2,  # mid-epoch: an epoch has 7 windows
            save_total_limit=2,
            load_best_model_at_end=True,
            dataloader_num_workers=workers,
            use_cpu=True,
        ),
        train_dataset=NoisyPoints(),
        eval_dataset=NoisyPoints(),
        callbacks=[Announce()],
    )
    trainer.train(resume_from_checkpoint=latest_checkpoint(run_dir) is not None)
    torch.save(trainer.adapter.state_dict(), run_dir / "final.pt")
    print("done", flush=True)


if __name__ == "__main__":
    main()
