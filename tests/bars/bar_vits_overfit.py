"""``vits/tiny`` from random weights on one minute of speech."""

from __future__ import annotations

import contextlib
import json
import os
import random
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

from barkit import Outcome, bar, shared_data

SECONDS_OF_SPEECH = 60.0
STEPS = 450
MINUTES = 15.0
FALL = 0.5
BAND = (0.5, 3.3)
RESUMPTIONS, STEPS_AFTER = 10, 6
LOSS = "loss/discriminator/adversarial"
TIMED = ("time", "second", "data_wait", "runtime")


class Interrupt(Exception):
    """What a resumed run ends with once enough steps were compared."""


def one_minute(data: Path, target: Path) -> Path:
    """A manifest of the first utterances that make a minute."""
    rows: list[dict[str, Any]] = []
    for line in (data / "train.jsonl").read_text(encoding="utf-8").splitlines():
        if sum(row["duration"] for row in rows) >= SECONDS_OF_SPEECH:
            break
        row = json.loads(line)
        rows.append({**row, "audio_filepath": str(data / row["audio_filepath"])})
    target.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return target


def build(manifest: Path, run: Path, callbacks: list[Any]) -> tuple[Any, Any]:
    """A Trainer of the preset, evaluated on its training utterances, and its experiment."""
    import yaml

    from voicehub import Trainer
    from voicehub_vits.config import VitsRunConfig
    from voicehub_vits.experiment import build_experiment

    preset = yaml.safe_load((files("voicehub_vits.presets") / "tiny.yaml").read_text())
    del preset["defaults"]
    preset["data"] |= {"train": str(manifest), "eval": {"same": str(manifest)}}
    preset["eval"] = {"samples": 0}
    preset["training"] |= {
        "output_dir": str(run), "max_steps": STEPS, "logging_steps": 1, "save_strategy": "no",
        "eval_strategy": "no",
    }  # fmt: skip
    config = VitsRunConfig.model_validate(preset)
    experiment = build_experiment(config)
    trainer = Trainer(
        model=experiment.model,
        args=config.training,
        train_dataset=experiment.train_dataset,
        eval_dataset=experiment.eval_datasets,
        data_collator=experiment.data_collator,
        train_plan=experiment.train_plan,
        eval_plans=experiment.eval_plans,
        callbacks=[*experiment.callbacks, *callbacks],
    )
    return trainer, experiment


def rows_of(trainer: Any) -> dict[int, dict[str, Any]]:
    """Training rows by step, without what tells time."""
    return {
        row["step"]: {k: v for k, v in row.items() if not any(word in k for word in TIMED)}
        for row in trainer.state.log_history
        if "loss" in row
    }


def with_backward_text(dataset: Any) -> Any:
    """The same recordings beside their texts read backwards."""
    from voicehub_vits.data import VitsDataset

    labels = [item._replace(input_ids=item.input_ids[::-1]) for item in dataset.labels]
    return VitsDataset(list(dataset.rows), labels, dataset.preparation)


def differing_steps(
    manifest: Path, run: Path, steps: list[int], curve: dict[int, dict[str, Any]]
) -> list[str]:
    """Steps at which a run resumed from a checkpoint leaves the curve."""
    from voicehub import TrainerCallback

    class StopsAt(TrainerCallback):
        def __init__(self, step: int) -> None:
            self.step = step

        def on_log(self, args: Any, state: Any, control: Any, **context: Any) -> None:
            if state.global_step >= self.step:
                raise Interrupt

    found = []
    for step in steps:
        trainer, _ = build(manifest, run, [StopsAt(min(STEPS, step + STEPS_AFTER))])
        with contextlib.suppress(Interrupt):
            trainer.train(resume_from_checkpoint=str(run / f"checkpoint-{step}"))
        again = rows_of(trainer)
        compared = [number for number in again if number > step]
        if not compared:
            found.append(f"{step}: nothing was logged")
        found += [f"{step}->{n}" for n in compared if again[n] != curve[n]]
    return found


@bar(
    "vits-overfit",
    f"one minute, random weights, {MINUTES:g} min: mel L1 -{100 * FALL:g} %, discriminators "
    f"within {BAND[0]:g} to {BAND[1]:g}, {RESUMPTIONS} resumptions bit-identical",
)
def vits_overfit(scratch: Path) -> Outcome:
    # As the command line does: threads that wait by spinning slow a busy machine down tenfold.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

    from voicehub import TrainerCallback

    manifest = one_minute(shared_data("ljspeech"), scratch / "minute.jsonl")
    saved = sorted(random.Random(0).sample(range(1, STEPS - STEPS_AFTER), RESUMPTIONS))

    class Saves(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **context: Any) -> None:
            control.should_save = control.should_save or state.global_step in saved

    run = scratch / "run"
    trainer, experiment = build(manifest, run, [Saves()])
    before = trainer.evaluate()["eval_loss/mel"]
    began = time.perf_counter()
    trainer.train()
    minutes = (time.perf_counter() - began) / 60.0
    final = trainer.evaluate()
    after, kl = final["eval_loss/mel"], final["eval_loss/kl"]
    backward = trainer.evaluate(with_backward_text(experiment.train_dataset))["eval_loss/kl"]
    curve = rows_of(trainer)
    late = [row[LOSS] for step, row in curve.items() if step > STEPS // 2]
    apart = differing_steps(manifest, run, saved, curve)
    fall = 1.0 - after / before
    passed = (
        fall >= FALL
        and minutes <= MINUTES
        and BAND[0] <= min(late)
        and max(late) <= BAND[1]
        and not apart
    )
    figure = (
        f"mel L1 {before:.3f} -> {after:.3f} (-{100 * fall:.0f} %) in {STEPS} steps, "
        f"{minutes:.1f} min; discriminators {min(late):.2f} to {max(late):.2f}; "
        f"{RESUMPTIONS} resumptions, {len(apart)} steps differ; KL of the texts {kl:.2f}, read "
        f"backwards {backward:.2f}"
    )
    return Outcome(figure, passed, {"differing": apart, "saved": saved})
