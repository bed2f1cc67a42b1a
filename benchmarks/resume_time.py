"""From ``train(resume)`` to the first batch, in the middle of an epoch, at step 100,000.

Our Trainer computes the epoch's plan and begins at the batch that is next; transformers' Trainer
walks its sampler past the batches that were read. Both make a run's checkpoint at step 100,000 of
125,000 an epoch (a million samples, batches of 8) without training so long: one update, then the
counters of the state are set forward. The model has three layers of 64, so that loading it costs
next to nothing.

The clock, CPU time of the process, runs from the call of ``train`` until the collate function is
given the first batch; the same is measured for runs that begin at step 0, so that the difference is
what the position costs. That the batch is the right one is checked: it must be the one that an
uninterrupted run reads at that step.

Run it alone with ``python benchmarks/resume_time.py [--samples 1000000 --rounds 7 --json]``.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from harness.interleaving import interleave
from harness.report import ratio_table
from torch import Tensor
from torch.utils.data import Dataset
from trainer_overhead import BATCH_SIZE, WIDTH, Perceptron

SAMPLES = 1_000_000
SEED = 0


class Numbered(Dataset[dict[str, Any]]):
    """Samples that know their number and cost nothing to read."""

    deterministic = True

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self.features = torch.zeros(WIDTH)

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"features": self.features, "number": index}


class FirstBatch:
    """Collates, and keeps when it was first asked and for which samples."""

    deterministic = True

    def __init__(self) -> None:
        self.at: float | None = None
        self.numbers: list[int] = []

    def __call__(self, samples: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        if self.at is None:
            self.at = time.process_time()
            self.numbers = [sample["number"] for sample in samples]
        features = torch.stack([sample["features"] for sample in samples])
        return {"features": features, "labels": torch.zeros(len(samples), dtype=torch.long)}


class Voicehub:
    """Our Trainer."""

    def __init__(self, samples: int, step: int, folder: Path) -> None:
        self.samples, self.step, self.folder = samples, step, folder

    def trainer(self, collate: FirstBatch, folder: Path, last_step: int) -> Any:
        from voicehub import Trainer, TrainingArguments

        arguments = TrainingArguments(
            output_dir=str(folder), per_device_train_batch_size=BATCH_SIZE, max_steps=last_step,
            lr_scheduler_type="constant", save_strategy="no", seed=SEED, use_cpu=True,
        )  # fmt: skip
        torch.manual_seed(SEED)
        return Trainer(
            model=Perceptron(),
            args=arguments,
            train_dataset=Numbered(self.samples),
            data_collator=collate,
        )

    def make_checkpoint(self) -> None:
        """One update, then the position of the step."""
        from voicehub.trainer.start import start_run

        trainer = self.trainer(FirstBatch(), self.folder, self.step + 1)
        run = start_run(trainer, None)
        for parameter in trainer.model.parameters():
            parameter.grad = torch.full_like(parameter, 1e-3)
        trainer.graph.optimizers.step()
        trainer.graph.optimizers.zero_grad()
        state = trainer.state
        state.global_step = state.train_batch_cursor = self.step
        state.epoch = self.step * BATCH_SIZE / self.samples
        run.saver.save(state)
        run.saver.settle(wait=True)

    def first_batch(self, resume: bool) -> tuple[float, list[int]]:
        """CPU seconds to the first batch, and its samples."""
        collate = FirstBatch()
        place = self.folder if resume else self.folder.with_name("voicehub-new")
        trainer = self.trainer(collate, place, self.step + 1 if resume else 1)
        began = time.process_time()
        trainer.train(resume_from_checkpoint=resume or None)
        if trainer.state.global_step != (self.step + 1 if resume else 1):
            raise RuntimeError(f"the run stands at step {trainer.state.global_step}")
        return _spent(collate, began), collate.numbers

    def expected(self) -> list[int]:
        """The samples that the next batch must hold."""
        from voicehub.data.plan import FixedSizePlan

        return FixedSizePlan(self.samples, BATCH_SIZE, seed=SEED).batches(0)[self.step]


class Transformers:
    """transformers' Trainer."""

    def __init__(self, samples: int, step: int, folder: Path) -> None:
        self.samples, self.step, self.folder = samples, step, folder

    def trainer(self, collate: FirstBatch, folder: Path, last_step: int, saved: bool) -> Any:
        from transformers import PrinterCallback, Trainer, TrainingArguments

        arguments = TrainingArguments(
            output_dir=str(folder), per_device_train_batch_size=BATCH_SIZE, max_steps=last_step,
            lr_scheduler_type="constant", save_strategy="steps" if saved else "no", save_steps=1,
            seed=SEED, use_cpu=True, report_to=[], disable_tqdm=True, remove_unused_columns=False,
            dataloader_pin_memory=False,
        )  # fmt: skip
        torch.manual_seed(SEED)
        trainer = Trainer(
            model=Perceptron(),
            args=arguments,
            train_dataset=Numbered(self.samples),
            data_collator=collate,
        )
        trainer.remove_callback(PrinterCallback)
        return trainer

    @property
    def checkpoint(self) -> Path:
        return self.folder / f"checkpoint-{self.step}"

    def make_checkpoint(self) -> None:
        """One update, then the position of the step."""
        with contextlib.redirect_stdout(io.StringIO()):
            self.trainer(FirstBatch(), self.folder, 1, True).train()
        (self.folder / "checkpoint-1").rename(self.checkpoint)
        state_file = self.checkpoint / "trainer_state.json"
        state = json.loads(state_file.read_text(encoding="utf-8"))
        state.update(global_step=self.step, epoch=self.step * BATCH_SIZE / self.samples)
        state_file.write_text(json.dumps(state), encoding="utf-8")

    def first_batch(self, resume: bool) -> tuple[float, list[int]]:
        """CPU seconds to the first batch, and its samples."""
        collate = FirstBatch()
        place = self.folder if resume else self.folder.with_name("transformers-new")
        trainer = self.trainer(collate, place, self.step + 1 if resume else 1, False)
        with contextlib.redirect_stdout(io.StringIO()):
            began = time.process_time()
            trainer.train(resume_from_checkpoint=str(self.checkpoint) if resume else None)
        if trainer.state.global_step != (self.step + 1 if resume else 1):
            raise RuntimeError(f"the run stands at step {trainer.state.global_step}")
        return _spent(collate, began), collate.numbers

    def expected(self) -> list[int]:
        """The samples that the next batch must hold: read by walking the loader of a new run."""
        trainer = self.trainer(FirstBatch(), self.folder.with_name("transformers-new"), 1, False)
        loader = trainer.get_train_dataloader()
        for number, batch in enumerate(loader.batch_sampler):
            if number == self.step:
                return list(batch)
        raise RuntimeError(f"an epoch has no batch {self.step}")


def _spent(collate: FirstBatch, began: float) -> float:
    if collate.at is None:
        raise RuntimeError("no batch was read")
    return collate.at - began


SYSTEMS: dict[str, Callable[[int, int, Path], Any]] = {
    "voicehub": Voicehub,
    "transformers": Transformers,
}


def measure(samples: int, rounds: int, folder: Path) -> dict[str, Any]:
    """Seconds by system of runs that resume and of runs that begin, one entry a round.

    Raises:
        RuntimeError: a system reads another batch than the one that is next.
    """
    step = samples // BATCH_SIZE * 4 // 5
    works: dict[str, Callable[[], float]] = {}
    for name, system in SYSTEMS.items():
        found = system(samples, step, folder / name)
        found.make_checkpoint()
        right = found.expected()
        numbers = found.first_batch(True)[1]
        if sorted(numbers) != sorted(right):
            raise RuntimeError(f"{name} resumed with samples {numbers}; expected {right}")
        works[name] = lambda found=found: found.first_batch(True)[0]  # type: ignore[misc]
        works[f"{name}, step 0"] = lambda found=found: found.first_batch(False)[0]  # type: ignore[misc]
    return {
        "samples": samples,
        "step": step,
        "seconds": interleave(works, rounds, clock=time.process_time),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    options = parser.parse_args(arguments)
    if options.samples < 10 * BATCH_SIZE or options.rounds < 1:
        parser.error(f"needs --samples >= {10 * BATCH_SIZE} and --rounds >= 1")
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    with tempfile.TemporaryDirectory() as folder:
        found = measure(options.samples, options.rounds, Path(folder))
    print(f"step {found['step']:,} of {options.samples // BATCH_SIZE:,} an epoch")
    print(ratio_table(found["seconds"], "transformers", 1e3, "ms"))
    if options.json:
        print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
