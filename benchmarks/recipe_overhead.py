"""CPU time per step of a GAN recipe of 1,000 modules, beside a hand-written loop.

Both run the same two phases on the same data from the same weights, the discriminator first and
stepped before the generator's forward: no gradient where a phase trains nothing, AdamW, linear
schedule to zero, clipping to norm 1, a check of every update for non-finite values, losses logged
every 20 steps, one thread. They are interleaved: in every round each runs once, in turning order,
and the losses must agree.

``--trace FILE`` writes a Chrome trace of one step by torch's profiler, in which everything between
the operators is the Trainer.

Run it alone with ``python benchmarks/recipe_overhead.py [--steps 60 --rounds 7 --json]``.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from harness.interleaving import interleave
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from voicehub import Trainer, TrainingArguments
from voicehub.adapters.base import TrainingAdapter
from voicehub.specs.model import ModelTrainingSpec
from voicehub.specs.phase import PhaseKind, TrainingPhaseSpec
from voicehub.specs.support import TrainingSupport
from voicehub.trainer.callbacks import TrainerCallback

WIDTH = 16
BATCH_SIZE = 8
LEARNING_RATE = 1e-3
MAX_GRAD_NORM = 1.0
LOGGING_STEPS = 20


def stack(modules: int) -> nn.Sequential:
    """Linear layers and activations in turn; ``modules`` of them with the stack itself."""
    layers = [nn.Linear(WIDTH, WIDTH) if n % 2 else nn.Tanh() for n in range(1, modules)]
    return nn.Sequential(*layers)


class Gan(nn.Module):
    """A generator and a discriminator of equal depth, of about ``modules`` modules in all."""

    def __init__(self, modules: int) -> None:
        super().__init__()
        self.generator = stack(modules // 2)
        self.discriminator = stack(modules // 2)

    def judge_loss(self, noise: Tensor, real: Tensor) -> Tensor:
        with torch.no_grad():
            fake = self.generator(noise)
        return (self.discriminator(real) - 1).square().mean() + self.discriminator(
            fake
        ).square().mean()

    def fool_loss(self, noise: Tensor) -> Tensor:
        loss: Tensor = (self.discriminator(self.generator(noise)) - 1).square().mean()
        return loss


class GanAdapter(TrainingAdapter):
    """The recipe of the Trainer."""

    supports_custom_recipe = True

    def training_step_loss(self, inputs: Any, phase: TrainingPhaseSpec) -> dict[str, Tensor]:
        noise, real = inputs
        if phase.name == "discriminator":
            return {"loss": self.model.judge_loss(noise, real)}
        return {"loss": self.model.fool_loss(noise)}


def recipe() -> ModelTrainingSpec:
    """Two phases on two routes, each stepped before the next."""
    kinds = {"discriminator": PhaseKind.DISCRIMINATOR, "generator": PhaseKind.GENERATOR}
    return ModelTrainingSpec(
        model_type="benchmark-gan",
        family="benchmark",
        support=TrainingSupport.CUSTOM,
        module_paths=("",),
        phases=tuple(
            TrainingPhaseSpec(
                name=name,
                kind=kind,
                component_paths=(name,),
                optimizer_names=(name,),
                forward_component=name,
                optimizer_step_after_phase=True,
            )
            for name, kind in kinds.items()
        ),
    )


class Clock:
    """CPU time between the first and the last collated batch."""

    deterministic = True

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.calls = 0
        self.first = self.last = 0.0

    def __call__(self, samples: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        self.calls += 1
        if self.calls == 1:
            self.first = time.process_time()
        elif self.calls == self.steps:
            self.last = time.process_time()
        return tuple(torch.stack(column) for column in zip(*samples, strict=True))

    @property
    def seconds_per_step(self) -> float:
        return (self.last - self.first) / (self.steps - 1)


def hand_written(model: Gan, data: TensorDataset, clock: Clock, directory: Path) -> list[float]:
    """What a person writes for these two phases."""
    loader = DataLoader(data, batch_size=BATCH_SIZE, collate_fn=clock)
    parts = {"discriminator": model.discriminator, "generator": model.generator}
    parameters = {name: list(part.parameters()) for name, part in parts.items()}
    optimizers = {
        name: torch.optim.AdamW(owned, lr=LEARNING_RATE, weight_decay=0.0)
        for name, owned in parameters.items()
    }
    schedulers = {
        name: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 - step / clock.steps)
        for name, optimizer in optimizers.items()
    }
    logged, total = [], 0.0
    model.train()
    for step, (noise, real) in enumerate(loader, start=1):
        for name in parts:
            frozen = parameters["generator" if name == "discriminator" else "discriminator"]
            for parameter in frozen:
                parameter.requires_grad_(False)
            loss = (
                model.judge_loss(noise, real) if name == "discriminator" else model.fool_loss(noise)
            )
            loss.backward()
            for parameter in frozen:
                parameter.requires_grad_(True)
            norm = nn.utils.clip_grad_norm_(parameters[name], MAX_GRAD_NORM)
            if torch.isfinite(norm):
                optimizers[name].step()
                schedulers[name].step()
            optimizers[name].zero_grad()
            total += loss.item()
        if step % LOGGING_STEPS == 0:
            logged.append(total / LOGGING_STEPS)
            total = 0.0
    return logged


def with_trainer(
    model: Gan,
    data: TensorDataset,
    clock: Clock,
    directory: Path,
    callbacks: Sequence[TrainerCallback] = (),
) -> list[float]:
    """The same as a recipe."""
    arguments = TrainingArguments(
        output_dir=str(directory),
        per_device_train_batch_size=BATCH_SIZE,
        num_train_epochs=1,
        learning_rate=LEARNING_RATE,
        max_grad_norm=MAX_GRAD_NORM,
        logging_steps=LOGGING_STEPS,
        save_strategy="no",
        use_cpu=True,
    )
    from voicehub.data.plan import FixedSizePlan

    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=data,
        data_collator=clock,
        training_adapter=GanAdapter(model, recipe()),
        train_plan=FixedSizePlan(len(data), BATCH_SIZE, seed=0, shuffle=False),
        callbacks=list(callbacks),
    )
    trainer.train()
    return [row["loss"] for row in trainer.state.log_history if "loss" in row]


SYSTEMS: dict[str, Callable[..., list[float]]] = {
    "hand-written": hand_written,
    "voicehub": with_trainer,
}


def run_once(name: str, modules: int, steps: int, **options: Any) -> tuple[float, list[float]]:
    """Seconds of CPU time per step, and the logged losses."""
    torch.manual_seed(0)
    model = Gan(modules)
    data = TensorDataset(*torch.randn(2, steps * BATCH_SIZE, WIDTH))
    clock = Clock(steps)
    gc.collect()
    with tempfile.TemporaryDirectory() as directory:
        losses = SYSTEMS[name](model, data, clock, Path(directory) / "run", **options)
    return clock.seconds_per_step, losses


def measure(modules: int, steps: int, rounds: int) -> dict[str, list[float]]:
    """CPU seconds per step by system, one entry a round; both must give the same losses."""
    for name in SYSTEMS:  # imports and first calls stay outside the measurement
        run_once(name, modules, 2)
    losses: dict[str, list[float]] = {}

    def once(name: str) -> float:
        seconds, losses[name] = run_once(name, modules, steps)
        return seconds

    times = interleave({name: partial(once, name) for name in SYSTEMS}, rounds, warm_up=False)
    torch.testing.assert_close(
        torch.tensor(losses["voicehub"]), torch.tensor(losses["hand-written"])
    )
    return times


class StepTrace(TrainerCallback):
    """Profiles one step."""

    def __init__(self, step: int, path: Path) -> None:
        self.step = step
        self.path = path
        self._profiler: Any = None

    def on_step_begin(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        if state.global_step == self.step:
            activities = [torch.profiler.ProfilerActivity.CPU]
            self._profiler = torch.profiler.profile(activities=activities)
            self._profiler.__enter__()

    def on_step_end(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        if self._profiler is not None:
            self._profiler.__exit__(None, None, None)
            self._profiler.export_chrome_trace(str(self.path))
            self._profiler = None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--modules", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--trace", type=Path, help="write a trace of one step and stop")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    options = parser.parse_args(arguments)
    if options.steps < LOGGING_STEPS or options.rounds < 1 or options.modules < 4:
        parser.error(f"needs --steps >= {LOGGING_STEPS}, --rounds >= 1 and --modules >= 4")
    torch.set_num_threads(1)
    if options.trace is not None:
        tracer = StepTrace(10, options.trace)
        run_once("voicehub", options.modules, LOGGING_STEPS, callbacks=[tracer])
        print(f"trace of step 10 in {options.trace}")
        return 0
    times = measure(options.modules, options.steps, options.rounds)
    medians = {name: statistics.median(values) for name, values in times.items()}
    ratio = medians["voicehub"] / medians["hand-written"]
    for name, seconds in medians.items():
        print(f"{name:14}{1e3 * seconds:9.2f} ms/step{seconds / medians['hand-written']:8.3f}")
    if options.json:
        rounds = {name: [round(1e3 * value, 3) for value in t] for name, t in times.items()}
        print(json.dumps({"modules": options.modules, "ratio": ratio, "ms_per_step": rounds}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
