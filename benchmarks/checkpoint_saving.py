"""How long a checkpoint of 50 million parameters with AdamW state holds training, and the disk.

Measured through the Trainer's own saver, interleaved with a plain ``torch.save`` of the same state,
in one process and on one disk:

* ``held``: how long the training thread waits in a save; the rest happens in the background. The
  first save also allocates the buffers that later ones copy into.
* ``durable``: from the start of that save until the checkpoint is complete: every file hashed and
  synced, the directory renamed. Compared with ``torch.save`` and an fsync.
* peak memory above what training holds, of the first save, of later ones, and of ``torch.save``.

Run it alone with ``python benchmarks/checkpoint_saving.py [--rounds 7 --layers 12 --json]``.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from voicehub import Trainer, TrainingArguments
from voicehub.trainer.start import StartedRun, start_run

WIDTH = 2048


class Layers(nn.Module):
    """Square layers, 4.2 million parameters each."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(layers))

    def forward(self, features: Tensor) -> dict[str, Tensor]:
        for layer in self.layers:
            features = layer(features)
        return {"loss": features.square().mean()}


@dataclass
class Measurement:
    """Seconds, one entry a round, and megabytes above what training holds."""

    held: list[float] = field(default_factory=list)
    durable: list[float] = field(default_factory=list)
    torch_save: list[float] = field(default_factory=list)
    torch_durable: list[float] = field(default_factory=list)
    torch_cpu: list[float] = field(default_factory=list)
    first_held: float = 0.0
    first_durable: float = 0.0
    megabytes: dict[str, float] = field(default_factory=dict)

    @property
    def contention(self) -> float:
        """Wall over CPU time of ``torch.save``, which computes and copies: 1 on an idle machine."""
        return statistics.median(self.torch_save) / statistics.median(self.torch_cpu)

    @property
    def held_ratio(self) -> float:
        """Median of a save's hold over the median of ``torch.save``."""
        return statistics.median(self.held) / statistics.median(self.torch_save)

    @property
    def durable_ratio(self) -> float:
        """Median of a durable checkpoint over the median of ``torch.save`` with fsync."""
        return statistics.median(self.durable) / statistics.median(self.torch_durable)


def started_run(directory: Path, layers: int) -> tuple[Trainer, StartedRun]:
    """A Trainer that stands before its next update, with AdamW state for every parameter."""
    torch.manual_seed(0)
    arguments = TrainingArguments(
        output_dir=str(directory / "run"), use_cpu=True, max_steps=1000, save_strategy="steps"
    )
    data = TensorDataset(torch.zeros(8, WIDTH))
    trainer = Trainer(model=Layers(layers), args=arguments, train_dataset=data)
    run = start_run(trainer, None)
    for parameter in trainer.model.parameters():
        parameter.grad = torch.full_like(parameter, 1e-3)
    trainer.graph.optimizers.step()
    trainer.graph.optimizers.zero_grad()
    trainer.state.global_step = 1
    gc.collect()
    return trainer, run


def save_with_trainer(trainer: Trainer, run: StartedRun) -> tuple[float, float]:
    """Seconds that the training thread is held, and seconds until the checkpoint is complete."""
    began = time.perf_counter()
    run.saver.save(trainer.state)
    held = time.perf_counter() - began
    run.saver.settle(wait=True)
    return held, time.perf_counter() - began


def save_with_torch(trainer: Trainer, directory: Path) -> tuple[float, float, float]:
    """Seconds of ``torch.save`` into a new file, with the fsync that makes it last, of its CPU."""
    path = directory / f"plain-{trainer.state.global_step}.pt"
    state = {
        "model": trainer.model.state_dict(),
        "optimizer": trainer.graph.optimizers.state_dict(),
    }
    began, cpu_began = time.perf_counter(), time.thread_time()
    torch.save(state, path)
    saved, cpu = time.perf_counter() - began, time.thread_time() - cpu_began
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    return saved, time.perf_counter() - began, cpu


def level_the_field(directory: Path, nbytes: float) -> None:
    """Delete what was saved before, and leave both systems the same pages for the disk cache.

    Where these come from costs more than filling them: the first write to memory that the machine
    has not used of late took ten times as long as the same write later.
    """
    for path in directory.glob("plain-*.pt"):
        path.unlink()
    for path in (directory / "run").glob("checkpoint-*"):
        shutil.rmtree(path)
    os.sync()
    filler = directory / "filler"
    block = bytes(16 << 20)
    with filler.open("wb", buffering=0) as file:
        for _ in range(int(1.2 * nbytes) // len(block) + 1):
            file.write(block)
    filler.unlink()


def peak_above(work: Callable[[], Any]) -> tuple[Any, float]:
    """Result of ``work``, and megabytes by which it raised the resident memory at its peak."""
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    before = _status("VmRSS")
    result = work()
    return result, (_status("VmHWM") - before) / 1e6


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"the system does not report {name}")


def measure(rounds: int, layers: int, directory: Path) -> Measurement:
    """Medians come from rounds that alternate which of the two goes first."""
    trainer, run = started_run(directory, layers)
    result = Measurement()
    result.megabytes["state"] = 3 * sum(p.nbytes for p in trainer.model.parameters()) / 1e6
    _, result.megabytes["torch.save"] = peak_above(lambda: save_with_torch(trainer, directory))
    first, result.megabytes["first save"] = peak_above(lambda: save_with_trainer(trainer, run))
    result.first_held, result.first_durable = first
    for turn in range(rounds):
        trainer.state.global_step += 1
        order = (_ours, _torchs) if turn % 2 else (_torchs, _ours)
        for system in order:
            system(trainer, run, directory, result)
    return result


def _ours(trainer: Trainer, run: StartedRun, directory: Path, result: Measurement) -> None:
    level_the_field(directory, 1e6 * result.megabytes["state"])
    (held, durable), peak = peak_above(lambda: save_with_trainer(trainer, run))
    result.held.append(held)
    result.durable.append(durable)
    result.megabytes["later save"] = max(peak, result.megabytes.get("later save", 0.0))


def _torchs(trainer: Trainer, run: StartedRun, directory: Path, result: Measurement) -> None:
    level_the_field(directory, 1e6 * result.megabytes["state"])
    saved, durable, cpu = save_with_torch(trainer, directory)
    result.torch_save.append(saved)
    result.torch_durable.append(durable)
    result.torch_cpu.append(cpu)


def table(result: Measurement) -> str:
    """The figures as text."""
    median = statistics.median
    lines = [
        f"{'':24}{'seconds':>9}{'ratio':>8}",
        f"{'torch.save':24}{median(result.torch_save):9.3f}{1.0:8.2f}",
        f"{'held by a save':24}{median(result.held):9.3f}{result.held_ratio:8.2f}",
        f"{'held by the first save':24}{result.first_held:9.3f}",
        f"{'torch.save + fsync':24}{median(result.torch_durable):9.3f}{1.0:8.2f}",
        f"{'durable checkpoint':24}{median(result.durable):9.3f}{result.durable_ratio:8.2f}",
        f"{'first durable one':24}{result.first_durable:9.3f}",
        f"wall over CPU time of torch.save: {result.contention:.2f} (1 on an idle machine)",
        "peak memory above training's, MB: "
        + ", ".join(f"{name} {value:.0f}" for name, value in result.megabytes.items()),
    ]
    return "\n".join(lines)


def as_json(result: Measurement, parameters: int) -> dict[str, Any]:
    """The figures for ``--json``."""
    return {
        "parameters": parameters,
        "contention": round(result.contention, 4),
        "held_ratio": round(result.held_ratio, 4),
        "durable_ratio": round(result.durable_ratio, 4),
        "first_held_ratio": round(result.first_held / statistics.median(result.torch_save), 4),
        "megabytes": {name: round(value, 1) for name, value in result.megabytes.items()},
        "seconds": {
            name: [round(value, 4) for value in getattr(result, name)]
            for name in ("held", "durable", "torch_save", "torch_durable")
        },
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--layers", type=int, default=12, help="of 4.2 million parameters each")
    parser.add_argument("--directory", type=Path, help="on the disk to measure")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    options = parser.parse_args(arguments)
    if options.rounds < 1 or options.layers < 1:
        parser.error("--rounds and --layers must be at least 1")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=options.directory) as scratch:
        result = measure(options.rounds, options.layers, Path(scratch))
    print(table(result))
    if options.json:
        parameters = options.layers * (WIDTH * WIDTH + WIDTH)
        print(json.dumps(as_json(result, parameters)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
