"""Steps of our Trainer, each followed by a step of a plain PyTorch loop on the same batch.

The plain loop trains a copy of the same modules with the same optimiser, schedule, clipping and
check for finite gradients; only how the loss is computed and who drives the step differ. The CPU
time of both is taken on one thread: it is the same on a busy machine, and one step after the other
cancels drift. Reading and collating the batch is in neither.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from harness.report import step_table
from voicehub import Trainer, TrainerCallback
from voicehub.data.plan import FixedSizePlan

LossOf = Callable[[nn.Module, Any], Tensor]
"""The loss of a batch by a copy of the model's module, as one writes it by hand."""

ByHand = Callable[[Any, Any], LossOf]
"""From a run's configuration and experiment to the loss that the plain loop computes."""

BATCH = 8
WARM_UP = 2


@dataclass
class Steps:
    """CPU seconds of each step of both loops, and their losses, warm-up included."""

    ours: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    losses: dict[str, list[float]] = field(default_factory=lambda: {"ours": [], "plain": []})

    @property
    def ratio(self) -> float:
        """Median of ours over the median of the plain loop's."""
        return statistics.median(self.ours) / statistics.median(self.plain)

    def as_json(self) -> dict[str, Any]:
        """The figures for ``--json``."""
        seconds = {"ours": self.ours, "plain": self.plain}
        return {"ratio": round(self.ratio, 4), "seconds": seconds}


class PlainLoop:
    """A training loop as one writes it by hand."""

    def __init__(self, module: nn.Module, loss_of: LossOf, training: Any, steps: int) -> None:
        self.module = copy.deepcopy(module)
        self.loss_of = loss_of
        self.max_norm = training.max_grad_norm
        self.parameters = [p for p in self.module.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            self.parameters,
            lr=training.learning_rate,
            betas=(training.adam_beta1, training.adam_beta2),
            eps=training.adam_epsilon,
            weight_decay=training.weight_decay,
            fused=training.adamw_fused,
        )
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: 1.0 - step / steps
        )

    def step(self, inputs: Any) -> Tensor:
        """One update; returns the loss."""
        self.module.train()
        loss = self.loss_of(self.module, inputs)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.parameters, self.max_norm)
        if torch.isfinite(norm):
            self.optimizer.step()
            self.schedule.step()
        self.optimizer.zero_grad()
        return loss.detach()


class _Beside(TrainerCallback):
    def __init__(self, loss_of: LossOf, warm_up: int) -> None:
        self.loss_of, self.warm_up = loss_of, warm_up
        self.found = Steps()
        self.trainer: Trainer | None = None
        self._plain: PlainLoop | None = None
        self._inputs: Any = None
        self._loss: Tensor | None = None
        self._began = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        assert self.trainer is not None
        adapter = self.trainer.adapter
        self._plain = PlainLoop(adapter.module, self.loss_of, args, state.max_steps)
        computed = adapter.training_step_loss

        def watched(inputs: Any, phase: Any) -> Any:
            self._inputs = inputs
            output = computed(inputs, phase)
            self._loss = output.loss.detach()
            return output

        adapter.training_step_loss = watched  # type: ignore[method-assign]

    def on_step_begin(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        self._began = time.process_time()

    def on_step_end(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        spent = time.process_time() - self._began
        assert self._plain is not None and self._loss is not None
        began = time.process_time()
        loss = self._plain.step(self._inputs)
        plain = time.process_time() - began
        self.found.losses["ours"].append(float(self._loss))
        self.found.losses["plain"].append(float(loss))
        if state.global_step > self.warm_up:
            self.found.ours.append(spent)
            self.found.plain.append(plain)


def steps_beside(
    preset: str,
    overrides: Sequence[str],
    build: Callable[[Any], Any],
    by_hand: ByHand,
    *,
    folder: Path,
    steps: int,
    batch: int = BATCH,
) -> Steps:
    """Run both loops for so many steps after :data:`WARM_UP`, which is left out.

    Args:
        preset: of a family, without warm-up, evaluation and checkpoints.
        overrides: of the preset.
        build: the family's ``build_experiment``.
        by_hand: from configuration and experiment to the plain loop's loss.
        folder: for the run.
        steps: to measure.
        batch: utterances in a batch.
    """
    config = _configuration(preset, folder, steps + WARM_UP, overrides)
    experiment = build(config)
    watcher = _Beside(by_hand(config, experiment), WARM_UP)
    trainer = Trainer(
        model=experiment.model,
        args=config.training,
        data_collator=experiment.data_collator,
        train_dataset=experiment.train_dataset,
        train_plan=FixedSizePlan(len(experiment.train_dataset), batch),
        callbacks=[watcher],
    )
    watcher.trainer = trainer
    trainer.train()
    return watcher.found


def run_command(
    measure: Callable[[int, Path], Steps], about: str | None, arguments: Sequence[str] | None
) -> int:
    """The command line of a script that measures one family's step.

    Args:
        measure: the steps to measure and a folder of its own.
        about: the script's docstring.
        arguments: of the command line.
    """
    parser = argparse.ArgumentParser(description=(about or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    options = parser.parse_args(arguments)
    if options.steps < 1:
        parser.error("--steps must be at least 1")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        found = measure(options.steps, Path(folder))
    print(step_table(found.ours, found.plain))
    if options.json:
        print(json.dumps(found.as_json()))
    return 0


def _configuration(preset: str, folder: Path, steps: int, overrides: Sequence[str]) -> Any:
    from voicehub.cli.compose import compose_preset
    from voicehub.cli.validate import validate_run

    own = (
        f"training.output_dir={folder / 'run'}",
        f"training.max_steps={steps}",
        f"training.logging_steps={steps}",
        "training.eval_strategy=no",
        "training.save_strategy=no",
        "training.warmup_steps=0",
        "training.warmup_ratio=0",
        "training.use_cpu=true",
    )
    return validate_run(compose_preset(preset, [*own, *overrides]))[1]
