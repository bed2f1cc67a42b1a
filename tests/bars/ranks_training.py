"""What the bars of several processes run under torchrun, or on ranks that they start.

Usage under torchrun: ranks_training.py RUN_DIR STEPS SAVE_STEPS. Each process leaves
``pids/<attempt>-<rank>`` beside the run directory, and sleeps a little every update so that a kill
hits any part of it.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from voicehub.data.keyed_random import numpy_generator
from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.callbacks import TrainerCallback
from voicehub.trainer.trainer import Trainer


class NoisyPoints:
    """Points moved by noise that is keyed by sample, epoch and draw."""

    def __init__(self, width: int, size: int = 64) -> None:
        self.width, self.size = width, size

    def __len__(self) -> int:
        return self.size

    def get_item(self, index: int, key: Any) -> dict[str, Tensor]:
        x = torch.linspace(-1, 1, self.width) * (index + 1) / self.size
        noise = torch.from_numpy(numpy_generator(*key, "noise").normal(size=self.width)).float()
        return {"x": x + 0.1 * noise, "y": x.sum()}


class Blocks(nn.Module):
    """A stack of blocks of equal width, with dropout."""

    def __init__(self, width: int, depth: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Linear(width, width), nn.Tanh(), nn.Dropout(dropout), nn.LayerNorm(width)
            )
            for _ in range(depth)
        )
        self.output = nn.Linear(width, 1)

    def forward(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        for block in self.blocks:
            x = x + block(x)
        return {"loss": (self.output(x).squeeze(-1) - y).square().mean()}


class Held(TrainerCallback):
    """Bytes of parameters, gradients and optimizer state that this process holds at an update."""

    def __init__(self) -> None:
        self.counted: list[int] = []
        self.resident: list[int] = []

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        trainer = context["trainer"]
        parts = trainer.strategy.local_tensors
        parameters = dict(trainer.graph.adapter.module.named_parameters())
        gradients = {n: p.grad for n, p in parameters.items() if p.grad is not None}
        states = {
            f"{route}/{number}/{key}": value
            for route, optimizer in trainer.graph.optimizers.optimizers.items()
            for number, entries in enumerate(optimizer.state.values())
            for key, value in entries.items()
        }
        held = (parts(parameters), parts(gradients), parts(states))
        self.counted.append(sum(t.nbytes for group in held for t in group.values()))
        self.resident.append(resident())


def resident() -> int:
    """Bytes of memory that this process has, as the system counts them.

    The C library keeps freed memory of many small blocks; it is asked to give that back first.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def memory(directory: Path, strategy: str) -> dict[str, int]:
    """Bytes at the third update: as counted, and what the process has grown by."""
    _train_and_hold(directory / "small", strategy, width=8, depth=1)  # what has to be imported
    before = resident()
    held = _train_and_hold(directory / "large", strategy, width=1024, depth=12)
    return {"counted": held.counted[-1], "resident": held.resident[-1] - before}


def _train_and_hold(directory: Path, strategy: str, *, width: int, depth: int) -> Held:
    torch.manual_seed(0)
    held = Held()
    trainer = Trainer(
        model=Blocks(width, depth),
        args=arguments(directory, strategy=strategy, max_steps=3, save_strategy="no"),
        train_dataset=NoisyPoints(width),
        callbacks=[held],
    )
    trainer.train()
    return held


def arguments(directory: Path, **settings: Any) -> TrainingArguments:
    """Settings of a short run on the CPU."""
    return TrainingArguments(
        output_dir=str(directory),
        use_cpu=True,
        per_device_train_batch_size=4,
        logging_strategy="no",
        **settings,
    )


def gpu_updates(
    directory: Path, strategy: str, accumulation: int, bf16: bool
) -> tuple[Tensor, float]:
    """Change of the weights over three updates on a GPU, and samples a second of this process."""
    torch.manual_seed(0)
    model = Blocks(512, 8, dropout=0.0)
    start = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(directory),
            strategy=strategy,
            bf16=bf16,
            optim="sgd",
            learning_rate=0.1,
            lr_scheduler_type="constant",
            per_device_train_batch_size=16,
            gradient_accumulation_steps=accumulation,
            max_steps=3,
            save_strategy="no",
            logging_strategy="no",
        ),
        train_dataset=NoisyPoints(512, size=256),
    )
    speed = trainer.train().metrics["train_samples_per_second"]
    whole = trainer.strategy.whole_tensor
    end = torch.cat([whole(p).flatten().cpu() for p in trainer.graph.adapter.module.parameters()])
    return (end - start).double(), speed


class Slow(TrainerCallback):
    """Leaves the process's number, and takes its time."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir

    def on_train_begin(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        attempt, rank = os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["RANK"]
        place = self.run_dir.parent / "pids"
        place.mkdir(exist_ok=True)
        temporary = place / f".{attempt}-{rank}"
        temporary.write_text(str(os.getpid()))
        temporary.rename(place / f"{attempt}-{rank}")

    def on_step_end(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        time.sleep(0.02)


def main(arguments_given: Sequence[str]) -> None:
    run_dir, steps = Path(arguments_given[0]), int(arguments_given[1])
    torch.set_num_threads(1)
    trainer = Trainer(
        model_init=lambda: Blocks(width=32, depth=3),
        args=arguments(
            run_dir,
            strategy="ddp",
            max_steps=steps,
            save_steps=int(arguments_given[2]),
            save_total_limit=2,
            ema_decay=0.99,
        ),
        train_dataset=NoisyPoints(32),
        callbacks=[Slow(run_dir)],
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main(sys.argv[1:])
