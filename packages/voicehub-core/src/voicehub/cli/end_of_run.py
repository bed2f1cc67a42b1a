"""The end of a run: the weights, then what follows from them, which may fail and is then named."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voicehub.cli.final_steps import attempt, run_final_steps
from voicehub.cli.run_request import RunRequest
from voicehub.errors import ConfigurationError
from voicehub.reporting import figures
from voicehub.reporting.html import REPORT_FILE, RunReport, write_report
from voicehub.reporting.media_files import latest_media
from voicehub.reporting.summary import RunSummary, alerts_in
from voicehub.trainer.averaging import AVERAGED_MODEL, Weights, weights_in_use
from voicehub.trainer.best import required_metric
from voicehub.trainer.metrics_file import METRICS_FILE, read_metrics

if TYPE_CHECKING:
    from voicehub.adapters.experiment import Experiment
    from voicehub.models.results import PredictionRow
    from voicehub.trainer.composition import RouteSummary
    from voicehub.trainer.trainer import Trainer, TrainOutput

SAMPLES_IN_REPORT = 12


def finish_run(
    request: RunRequest,
    experiment: Experiment,
    trainer: Trainer,
    output: TrainOutput,
    routes: Sequence[RouteSummary],
    record: Mapping[str, Any],
) -> RunSummary:
    """Save the weights first: nothing before them is lost by what fails behind them.

    Args:
        request: What was run.
        experiment: What the family built of it.
        trainer: After its last update.
        output: What it returned.
        routes: Of the optimiser, as they were at the start.
        record: Of the run.
    """
    model_directory = trainer.save_final_model()
    if request.config.training.overwrite_output_dir and not request.config.resume:
        _drop_older_averages(trainer)
    summary = _summary(request, trainer, output, model_directory)
    averaged = summary.averaged_model_directory
    # The one that the printed figures are of is the one to go on with.
    chosen = averaged if averaged and trainer.args.eval_weights == "ema" else model_directory
    summary.next_command = experiment.next_command(chosen) if experiment.next_command else ""
    summary.metrics = (
        _guarded(trainer, summary, "The evaluation", _final_metrics, trainer, experiment) or {}
    )
    summary.warnings += _unknown_metric(trainer, summary.metrics)
    summary.metric_weights = figures.weights_of(trainer.state.log_history)
    summary.best = _best(trainer)
    summary.skipped_steps = trainer.state.skipped_steps
    report = RunReport(
        summary=summary,
        data=experiment.data_report,
        routes=[dataclasses.asdict(route) for route in routes],
        configuration=request.yaml,
        record={key: value for key, value in record.items() if key != "config"},
        audio_bytes=getattr(experiment, "audio_bytes", None),
        figure_notes=experiment.figure_notes,
    )
    if trainer.strategy.is_primary or trainer.strategy.holds_parts:
        report = _with_samples(report, experiment, trainer)
    if trainer.strategy.is_primary:
        _write(report, request.run_directory)
    return summary


def _drop_older_averages(trainer: Trainer) -> None:
    """A run that keeps no averages leaves none of the overwritten run beside its own weights."""
    if trainer.averaging is None and trainer.strategy.is_primary:
        shutil.rmtree(trainer.run_dir / AVERAGED_MODEL, ignore_errors=True)


def _summary(
    request: RunRequest, trainer: Trainer, output: TrainOutput, model_directory: Path
) -> RunSummary:
    """What is known once the final model is saved; the averaged one is saved here."""
    summary = RunSummary(
        name=request.config.name,
        family=request.spec.family,
        model_type=request.spec.model_type,
        device=trainer.graph.device,
        steps=output.global_step,
        seconds=output.metrics["train_runtime"],
        training_loss=output.training_loss,
        run_directory=request.run_directory,
        model_directory=model_directory,
    )
    if trainer.averaging is not None:
        summary.averaged_model_directory = _guarded(
            trainer, summary, "The averaged model", trainer.save_averaged_model
        )
        summary.averages = trainer.averaging.describe()
    return summary


def _with_samples(report: RunReport, experiment: Experiment, trainer: Trainer) -> RunReport:
    """The report with what the weights do: predictions, and the family's own steps."""
    summary, averaging = report.summary, trainer.averaging
    weights: Weights = "ema" if trainer.args.eval_weights == "ema" else "raw"
    with weights_in_use(averaging, weights), trainer.strategy.open_model(trainer.graph.model):
        predictions = attempt(summary.warnings, "Sample predictions", _predictions, experiment)
    return replace(
        report,
        predictions=predictions or [],
        sheets=run_final_steps(trainer, experiment.model, experiment.final_steps, summary),
        weights=None if averaging is None else weights,
    )


def _write(report: RunReport, directory: Path) -> None:
    rows, summary = read_metrics(directory / METRICS_FILE), report.summary
    summary.warnings = [*alerts_in(rows), *summary.warnings]
    complete = replace(report, rows=rows, media=latest_media(directory))
    summary.report = directory / REPORT_FILE
    if attempt(summary.warnings, "The report", _write_report, summary.report, complete) is None:
        summary.report = None


def _guarded(
    trainer: Trainer, summary: RunSummary, what: str, action: Callable[..., Any], *arguments: Any
) -> Any | None:
    """``attempt`` for what processes do together: of several, one that fails ends the others."""
    if trainer.strategy.world_size > 1:
        return action(*arguments)
    return attempt(summary.failures, what, action, *arguments)


def _predictions(experiment: Experiment) -> list[PredictionRow]:
    return list(experiment.predict(SAMPLES_IN_REPORT)) if experiment.predict else []


def _write_report(path: Path, report: RunReport) -> Path:
    write_report(path, report)
    return path


def _final_metrics(trainer: Trainer, experiment: Experiment) -> dict[str, float]:
    """Metrics of the weights that were saved; measured only if the last update was not."""
    if not experiment.eval_datasets:
        return {}
    args, state = trainer.args, trainer.state
    if state.last_evaluation_step == state.global_step and not args.load_best_model_at_end:
        metrics = {}
        for row in state.log_history:  # raw and averaged weights have rows of their own
            if row["step"] == state.last_evaluation_step:
                metrics.update(figures.evaluation_metrics(row))
    else:
        metrics = figures.evaluation_metrics(trainer.evaluate())
    if len(experiment.eval_datasets) == 1:  # the mean over one split says the same twice
        split = next(iter(experiment.eval_datasets))
        metrics = {k: v for k, v in metrics.items() if not k.startswith(f"eval_{split}_")}
    return metrics


def _unknown_metric(trainer: Trainer, metrics: Mapping[str, float]) -> list[str]:
    """A misspelt ``metric_for_best_model`` that no evaluation in training could find."""
    name = trainer.args.metric_for_best_model
    if name is None or not metrics:
        return []
    try:
        required_metric(metrics, name)
    except ConfigurationError as error:
        return [str(error)]
    return []


def _best(trainer: Trainer) -> tuple[str, float, int | None] | None:
    state, name = trainer.state, trainer.args.metric_for_best_model
    if name is None or state.best_metric is None:
        return None
    return name, state.best_metric, state.best_global_step
