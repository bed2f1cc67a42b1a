"""``voicehub debug``: look into what went wrong in a run."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from voicehub.cli.options import JsonOption
from voicehub.cli.output import UsageError, finish
from voicehub.cli.tables import table

if TYPE_CHECKING:
    from voicehub.trainer.replay import Replay
    from voicehub.trainer.trainer import Trainer

app = typer.Typer(help="Look into what went wrong in a run.", no_args_is_help=True)

SHOWN = 12


@app.callback()
def _root() -> None:
    pass  # Keeps `replay` a command of its own while it is the only one.


@app.command("replay")
def replay_(
    dump: Annotated[
        Path, typer.Argument(metavar="DUMP", help="A directory nonfinite/step-<n> of a run.")
    ],
    json_: JsonOption = False,
) -> None:
    """Run an update again that was not finite: losses by sample, gradients by module."""
    from voicehub.cli.logs import show_logs
    from voicehub.trainer.replay import replay

    show_logs()
    directory = dump.resolve()
    config = directory.parent.parent / "config.yaml"
    if not directory.is_dir():
        raise UsageError(f"{dump} does not exist; a run keeps its dumps in nonfinite/.")
    if not config.is_file():
        raise UsageError(
            f"{config} does not exist: a dump is run again in its run directory, from the "
            "configuration there. Use voicehub.trainer.replay for runs without one."
        )
    with tempfile.TemporaryDirectory(prefix="voicehub-replay-") as scratch:
        result = replay(_trainer_of(config, scratch), directory)
    answer = {**dataclasses.asdict(result), "finite": result.is_finite}
    finish({"replay": answer}, json_mode=json_, human=_text(result))


def _trainer_of(config_file: Path, scratch: str) -> Trainer:
    """The run's Trainer: its family builds model and data again; nothing is written or reported."""
    from voicehub.cli.compose import compose_preset
    from voicehub.cli.run_request import RunRequest
    from voicehub.cli.training_run import build_experiment
    from voicehub.cli.validate import validate_run
    from voicehub.trainer.arguments import TrainingArguments
    from voicehub.trainer.trainer import Trainer

    composition = compose_preset(str(config_file), [])
    spec, config = validate_run(composition)
    experiment = build_experiment(RunRequest(composition, spec, config, {}, json_mode=True))
    quiet = {"output_dir": scratch, "report_to": [], "push_to_hub": False, "hub_model_id": None}
    arguments = TrainingArguments.from_dict({**config.training.to_dict(), **quiet})
    return Trainer(
        model=experiment.model,
        args=arguments,
        data_collator=experiment.data_collator,
        train_dataset=experiment.train_dataset,
        processing_class=experiment.processing_class,
        training_adapter=experiment.adapter,
        train_plan=experiment.train_plan,
    )


def _text(result: Replay) -> str:
    lines = [f"after step {result.step}: {result.reason}"]
    lines += [f"loss of '{name}' now: {value:g}" for name, value in result.losses.items()]
    lines.append(f"gradient norm now: {result.grad_norm:g}")
    if result.first_nonfinite_module is not None:
        lines.append(f"first output that is not finite: {result.first_nonfinite_module}")
    lines += _names("weights that are not finite", result.nonfinite_weights)
    lines += _names("gradients that are not finite", result.nonfinite_gradients)
    rows: list[tuple[Any, ...]] = [
        (sample.id, sample.phase, sample.problem if sample.loss is None else f"{sample.loss:g}")
        for sample in result.samples
    ]
    lines += ["", table(("sample alone", "phase", "loss"), rows)]
    norms = [(name, f"{value:g}") for name, value in result.gradient_norms.items()]
    lines += ["", table(("module", "gradient norm"), norms)]
    if result.is_finite:
        lines += ["", "All of it is finite this time: the failure depends on more than the dump."]
    return "\n".join(lines)


def _names(what: str, names: list[str]) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return [f"{what}: {', '.join(names[:SHOWN])}{more}"]
