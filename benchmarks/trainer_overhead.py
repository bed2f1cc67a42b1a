"""CPU time per step that a trainer adds to a bare PyTorch loop.

Five systems train the same model on the same data, interleaved: in every round each of them runs
once, and the order turns from round to round. The model is so small (three layers of 64, batches
of 8) that what is measured is the trainer, not the arithmetic.

Equal in all: data set, collate function, shuffling, AdamW with its default implementation,
linear schedule to zero, clipping to norm 1, a check of every update for non-finite values, loss,
learning rate and gradient norm logged every 100 steps, no checkpoints, one thread. speechbrain's
Brain does not tell the norm, and logs none.

A step is timed from batch to batch: the clock is read when the first and when the last batch is
collated, and the difference is divided by the steps between them. Start and end of ``train()``
are thereby left out; the column ``start+end`` shows them.

Run it alone with ``python benchmarks/trainer_overhead.py [--steps 2000 --rounds 7 --json]``.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import json
import logging
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from harness.interleaving import interleave
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

WIDTH = 64
BATCH_SIZE = 8
LEARNING_RATE = 1e-3
MAX_GRAD_NORM = 1.0
LOGGING_STEPS = 100
SEED = 0


class Perceptron(nn.Module):
    """Three layers of 64; returns its loss as trainers of the ecosystem expect it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(),
            nn.Linear(WIDTH, WIDTH),
        )  # fmt: skip

    def forward(self, features: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.layers(features)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def make_data(steps: int) -> TensorDataset:
    """``steps`` batches of a task that can be learnt: labels of a random linear map."""
    generator = torch.Generator().manual_seed(SEED)
    features = torch.randn(steps * BATCH_SIZE, WIDTH, generator=generator)
    teacher = torch.randn(WIDTH, WIDTH, generator=generator)
    return TensorDataset(features, (features @ teacher).argmax(dim=1))


@dataclass
class TimedCollate:
    """The collate function of all four systems; reads the clock at the first and last batch."""

    deterministic = True  # it draws nothing, so our loader need not guard the random state

    steps: int
    calls: int = 0
    first: float = 0.0
    last: float = 0.0

    def __call__(self, samples: Sequence[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
        self.calls += 1
        if self.calls == 1:
            self.first = time.process_time()
        elif self.calls == self.steps:
            self.last = time.process_time()
        features, labels = zip(*samples, strict=True)
        return {"features": torch.stack(features), "labels": torch.stack(labels)}

    @property
    def seconds_per_step(self) -> float:
        if self.calls != self.steps:
            raise RuntimeError(f"{self.calls} batches were made for {self.steps} steps")
        return (self.last - self.first) / (self.steps - 1)


@dataclass(frozen=True)
class Run:
    """One training by one system, for the comparison and for the check that it trained."""

    losses: Sequence[float]


System = Callable[[nn.Module, TensorDataset, TimedCollate, int, Path], Run]


def bare_loop(
    model: nn.Module, data: TensorDataset, collate: TimedCollate, steps: int, directory: Path
) -> Run:
    """What a person writes who needs nothing but the update."""
    loader = DataLoader(data, batch_size=BATCH_SIZE, shuffle=True, collate_fn=collate)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 - step / steps)
    log: list[dict[str, float]] = []
    loss_sum = torch.zeros(())
    model.train()
    for step, batch in enumerate(loader, start=1):
        loss = model(**batch)["loss"]
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)
        if torch.isfinite(norm):
            optimizer.step()
            scheduler.step()
        optimizer.zero_grad()
        loss_sum += loss.detach()
        if step % LOGGING_STEPS == 0:
            log.append(
                {
                    "step": step,
                    "loss": loss_sum.item() / LOGGING_STEPS,
                    "learning_rate": scheduler.get_last_lr()[0],
                    "grad_norm": norm.item(),
                }
            )
            loss_sum.zero_()
    return Run([row["loss"] for row in log])


def voicehub_trainer(
    model: nn.Module, data: TensorDataset, collate: TimedCollate, steps: int, directory: Path
) -> Run:
    """Ours, which checks gradients and writes metrics.jsonl by default."""
    from voicehub import Trainer, TrainingArguments

    arguments = TrainingArguments(
        output_dir=str(directory),
        per_device_train_batch_size=BATCH_SIZE,
        num_train_epochs=1,
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="linear",
        max_grad_norm=MAX_GRAD_NORM,
        logging_steps=LOGGING_STEPS,
        save_strategy="no",
        seed=SEED,
        use_cpu=True,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=data, data_collator=collate)
    trainer.train()
    return _run_of(trainer.state, steps)


def transformers_trainer(
    model: nn.Module, data: TensorDataset, collate: TimedCollate, steps: int, directory: Path
) -> Run:
    """Its finite check is the one it has by default, of the loss."""
    from transformers import PrinterCallback, Trainer, TrainingArguments

    arguments = TrainingArguments(
        output_dir=str(directory),
        per_device_train_batch_size=BATCH_SIZE,
        num_train_epochs=1,
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="linear",
        max_grad_norm=MAX_GRAD_NORM,
        logging_steps=LOGGING_STEPS,
        logging_nan_inf_filter=True,
        optim="adamw_torch",
        save_strategy="no",
        seed=SEED,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=data, data_collator=collate)
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return _run_of(trainer.state, steps)


def _run_of(state: Any, steps: int) -> Run:
    if state.global_step != steps:
        raise RuntimeError(f"{state.global_step} steps were made instead of {steps}")
    return Run([row["loss"] for row in state.log_history if "loss" in row])


def lightning_trainer(
    model: nn.Module, data: TensorDataset, collate: TimedCollate, steps: int, directory: Path
) -> Run:
    """With a CSV logger; the finite check sits where it documents gradient clipping."""
    import lightning
    from lightning.pytorch.loggers import CSVLogger

    logging.getLogger("lightning.pytorch.utilities.rank_zero").setLevel(logging.ERROR)
    losses: list[Tensor] = []

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: Mapping[str, Tensor], batch_index: int) -> Tensor:
            loss: Tensor = self.model(**batch)["loss"]
            self.log("loss", loss, batch_size=BATCH_SIZE)
            if (batch_index + 1) % LOGGING_STEPS == 0:
                losses.append(loss.detach())
            return loss

        def configure_gradient_clipping(
            self,
            optimizer: Any,
            gradient_clip_val: float | None = None,
            gradient_clip_algorithm: str | None = None,
        ) -> None:
            norm = nn.utils.clip_grad_norm_(self.parameters(), MAX_GRAD_NORM)
            if not torch.isfinite(norm):
                optimizer.zero_grad()
            if (self.global_step + 1) % LOGGING_STEPS == 0:
                self.log("grad_norm", norm)

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
            scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: 1.0 - s / steps)
            return {
                "optimizer": optimizer,
                "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
            }

    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=1,
        gradient_clip_val=MAX_GRAD_NORM,
        log_every_n_steps=LOGGING_STEPS,
        logger=CSVLogger(directory),
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=directory,
    )
    loader = DataLoader(data, batch_size=BATCH_SIZE, shuffle=True, collate_fn=collate)
    trainer.fit(Module(), loader)
    if trainer.global_step != steps:
        raise RuntimeError(f"{trainer.global_step} steps were made instead of {steps}")
    return Run([loss.item() for loss in losses])


def speechbrain_brain(
    model: nn.Module, data: TensorDataset, collate: TimedCollate, steps: int, directory: Path
) -> Run:
    """Its finite check is the one it has by default, of the loss; it knows no logging by steps."""
    from voicehub_xvector.speechbrain_parts import speechbrain_part

    log: list[dict[str, float]] = []

    class PerceptronBrain(speechbrain_part("core").Brain):  # type: ignore[misc]
        def compute_forward(self, batch: Mapping[str, Tensor], stage: Any) -> Tensor:
            loss: Tensor = self.modules.model(**batch)["loss"]
            return loss

        def compute_objectives(self, predictions: Tensor, batch: Any, stage: Any) -> Tensor:
            return predictions

        def init_optimizers(self) -> None:
            super().init_optimizers()
            self.schedule = torch.optim.lr_scheduler.LambdaLR(
                self.optimizer, lambda step: 1.0 - step / steps
            )

        def on_fit_batch_end(self, batch: Any, outputs: Any, loss: Tensor, step: bool) -> None:
            self.schedule.step()
            if self.step % LOGGING_STEPS == 0:
                rate = self.schedule.get_last_lr()[0]
                log.append({"step": self.step, "loss": loss.item(), "learning_rate": rate})

    optimizer = lambda parameters: torch.optim.AdamW(  # noqa: E731
        parameters, lr=LEARNING_RATE, weight_decay=0.0
    )
    options = {"device": "cpu", "max_grad_norm": MAX_GRAD_NORM, "noprogressbar": True}
    brain = PerceptronBrain(
        {"model": model}, opt_class=optimizer, run_opts=options, hparams={"unused": None}
    )
    loader = DataLoader(data, batch_size=BATCH_SIZE, shuffle=True, collate_fn=collate)
    brain.fit([1], loader)
    if brain.optimizer_step != steps:
        raise RuntimeError(f"{brain.optimizer_step} steps were made instead of {steps}")
    return Run([row["loss"] for row in log])


SYSTEMS: dict[str, System] = {
    "bare": bare_loop,
    "voicehub": voicehub_trainer,
    "transformers": transformers_trainer,
    "lightning": lightning_trainer,
    "speechbrain": speechbrain_brain,
}


@dataclass
class Measurement:
    """Of one system, one entry a round."""

    per_step: list[float] = field(default_factory=list)
    around: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.per_step)


def measure_once(
    system: System, data: TensorDataset, steps: int, result: Measurement
) -> Sequence[float]:
    """One run of one system; returns its logged losses."""
    torch.manual_seed(SEED)
    model, collate = Perceptron(), TimedCollate(steps)
    gc.collect()
    with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stdout(io.StringIO()):
        began = time.process_time()
        run = system(model, data, collate, steps, Path(directory) / "run")
        total = time.process_time() - began
    result.per_step.append(collate.seconds_per_step)
    result.around.append(total - (collate.last - collate.first))
    return run.losses


def check_that_it_trained(name: str, losses: Sequence[float], steps: int) -> None:
    """Speed is worth nothing where the loss did not fall."""
    if len(losses) < max(1, steps // LOGGING_STEPS) - 1:
        raise RuntimeError(f"{name}: {len(losses)} losses were logged in {steps} steps")
    if len(losses) > 4 and not sum(losses[-2:]) < sum(losses[:2]):
        raise RuntimeError(f"{name}: the loss did not fall: {losses}")


def measure(names: Sequence[str], steps: int, rounds: int) -> dict[str, Measurement]:
    """Medians over ``rounds``, the systems interleaved and their order turned every round."""
    data = make_data(steps)
    results = {name: Measurement() for name in names}
    warm_up = make_data(20)
    for name in names:  # imports and first calls stay outside the measurement
        measure_once(SYSTEMS[name], warm_up, 20, Measurement())

    def once(name: str) -> None:
        losses = measure_once(SYSTEMS[name], data, steps, results[name])
        check_that_it_trained(name, losses, steps)

    interleave({name: partial(once, name) for name in names}, rounds, warm_up=False)
    return results


def table(results: Mapping[str, Measurement]) -> str:
    bare = results["bare"].median
    lines = [f"{'system':14}{'us/step':>10}{'min':>8}{'max':>8}{'ratio':>8}{'start+end, s':>14}"]
    for name, result in results.items():
        scaled = [1e6 * value for value in (result.median, min(result.per_step))]
        lines.append(
            f"{name:14}{scaled[0]:10.1f}{scaled[1]:8.1f}{1e6 * max(result.per_step):8.1f}"
            f"{result.median / bare:8.3f}{statistics.median(result.around):14.3f}"
        )
    return "\n".join(lines)


def as_json(results: Mapping[str, Measurement], steps: int, rounds: int) -> dict[str, Any]:
    bare = results["bare"].median
    return {
        "steps": steps,
        "rounds": rounds,
        "torch": torch.__version__,
        "systems": {
            name: {
                "us_per_step": round(1e6 * result.median, 2),
                "ratio_to_bare": round(result.median / bare, 4),
                "us_per_step_by_round": [round(1e6 * value, 2) for value in result.per_step],
                "start_and_end_seconds": round(statistics.median(result.around), 4),
            }
            for name, result in results.items()
        },
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    options = parser.parse_args(arguments)
    if options.steps < 2 or options.rounds < 1:
        parser.error("--steps must be at least 2 and --rounds at least 1")
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    names = ["bare", *(name for name in options.systems if name != "bare")]
    results = measure(names, options.steps, options.rounds)
    print(table(results))
    if options.json:
        print(json.dumps(as_json(results, options.steps, options.rounds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
