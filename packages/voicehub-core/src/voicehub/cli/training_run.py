"""One run of ``voicehub train`` after its configuration is settled, from the data to the report."""

from __future__ import annotations

import dataclasses
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voicehub.cli.end_of_run import finish_run
from voicehub.cli.interrupt import StopOnInterrupt
from voicehub.cli.logs import show_logs
from voicehub.cli.output import Interrupted, UsageError, remember_run_directory, say
from voicehub.cli.processes import joined_processes
from voicehub.cli.run_record import (
    build_record,
    code_digest,
    prepare_run_directory,
    write_record,
)
from voicehub.cli.run_request import (
    RunRequest,
    how_to_continue,
    resume_from,
    with_initial_weights,
)
from voicehub.cli.training_tables import data_table, routes_table
from voicehub.reporting.console import ConsoleCallback
from voicehub.reporting.media_files import MediaFilesCallback
from voicehub.reporting.summary import RunSummary
from voicehub.trainer.callbacks import TrainerCallback
from voicehub.trainer.reporters import check_reporters

if TYPE_CHECKING:
    from voicehub.adapters.experiment import Experiment
    from voicehub.cli.start_estimate import StartEstimates
    from voicehub.models.initial import InitialWeights
    from voicehub.strategies.base import TrainingStrategy
    from voicehub.trainer.arguments import TrainingArguments
    from voicehub.trainer.composition import RouteSummary
    from voicehub.trainer.state import TrainerControl, TrainerState
    from voicehub.trainer.trainer import Trainer


def run_training(request: RunRequest, estimates: StartEstimates | None = None) -> RunSummary:
    """Build the experiment, train, save, evaluate and report.

    Args:
        request: what to run.
        estimates: tells what memory the run needs; None where nobody asks.

    Raises:
        Interrupted: the user stopped it; the message says how to continue.
    """
    with joined_processes(request.config.training) as strategy:
        return _run_joined(request, strategy, estimates)


def _run_joined(
    request: RunRequest, strategy: TrainingStrategy | None, estimates: StartEstimates | None
) -> RunSummary:
    """The run of this process; ``strategy`` is None where there is no other."""
    show_logs(quiet=strategy is not None and not strategy.is_primary)
    if strategy is not None and not strategy.is_primary:
        request = replace(request, json_mode=False)  # standard output goes nowhere
    # Caches and the run directory are made once: the other processes find them.
    with nullcontext() if strategy is None else strategy.primary_first("the data"):
        request = with_initial_weights(request)
        resume = resume_from(request)
        prepare_run_directory(request.run_directory)
        try:
            check_reporters(request.config.training)
            experiment = build_experiment(request)
        except Exception as error:
            remember_run_directory(error, request.run_directory)
            raise
    try:
        return _run(request, experiment, strategy, resume, estimates)
    except KeyboardInterrupt:
        raise Interrupted(how_to_continue(request)) from None
    except Exception as error:
        remember_run_directory(error, request.run_directory)
        raise


def _run(
    request: RunRequest,
    experiment: Experiment,
    strategy: TrainingStrategy | None,
    resume: bool | str | None,
    estimates: StartEstimates | None,
) -> RunSummary:
    if experiment.data_report:
        say(data_table(experiment.data_report), json_mode=request.json_mode)
    stop = StopOnInterrupt()
    start = _StartOfRun(request, experiment)
    console = ConsoleCallback(
        request.config.name,
        stream=sys.stderr if request.json_mode else sys.stdout,
        notes=experiment.figure_notes,
    )
    media = MediaFilesCallback(request.run_directory)
    callbacks: list[TrainerCallback] = [start, console, media, stop]
    if estimates is not None and (strategy is None or strategy.is_primary):
        callbacks.append(estimates.watching(request, experiment, strategy, console))
    trainer = build_trainer(request, experiment, callbacks, strategy)
    try:
        with stop.listening():
            output = trainer.train(resume_from_checkpoint=resume)
    finally:
        console.close()
    stopped = trainer.strategy.any_rank(stop.requested)  # a signal may reach one process alone
    if stopped and trainer.state.global_step < trainer.state.max_steps:
        raise Interrupted(how_to_continue(request))
    return finish_run(request, experiment, trainer, output, start.routes, start.record)


def build_experiment(request: RunRequest) -> Experiment:
    """What the family makes of the configuration.

    Raises:
        UsageError: the model type declares no experiment.
        PluginError: its factory returned something else.
    """
    from voicehub.adapters.experiment import Experiment
    from voicehub.errors import PluginError
    from voicehub.plugins.loading import resolve_reference

    spec = request.spec
    if not spec.experiment_factory:
        raise UsageError(f"'{spec.model_type}' declares no experiment for `voicehub train`.")
    factory: Any = resolve_reference(spec.experiment_factory, what=f"'{spec.model_type}'")
    experiment = factory(request.config)
    if not isinstance(experiment, Experiment):
        raise PluginError(
            f"{spec.experiment_factory} must return an Experiment, got {type(experiment).__name__}."
        )
    if request.initial is not None:
        _start_from(experiment, request.initial)
    return experiment


def _start_from(experiment: Experiment, weights: InitialWeights) -> None:
    from voicehub.models.lifecycle import PreTrainedSpeechModel

    if not isinstance(experiment.model, PreTrainedSpeechModel):
        raise UsageError(
            f"init_from needs a model wrapper; this family trains a plain "
            f"{type(experiment.model).__name__}."
        )
    experiment.model.start_from(weights)


def build_trainer(
    request: RunRequest,
    experiment: Experiment,
    callbacks: list[TrainerCallback],
    strategy: TrainingStrategy | None,
) -> Trainer:
    """Wire an experiment to a Trainer."""
    from voicehub.trainer.trainer import Trainer

    return Trainer(
        model=experiment.model,
        args=request.config.training,
        data_collator=experiment.data_collator,
        train_dataset=experiment.train_dataset,
        eval_dataset=experiment.eval_datasets or None,
        processing_class=experiment.processing_class,
        callbacks=[*experiment.callbacks, *callbacks],
        training_adapter=experiment.adapter,
        training_strategy=strategy,
        train_plan=experiment.train_plan,
        eval_plans=experiment.eval_plans,
        evaluation_tasks=experiment.evaluation_tasks,
    )


# -- the start -----------------------------------------------------------------------------


class _StartOfRun(TrainerCallback):
    """At the start of training: prints what trains, and writes the record."""

    def __init__(self, request: RunRequest, experiment: Experiment) -> None:
        self.request = request
        self.experiment = experiment
        self.record: dict[str, Any] = {}
        self.routes: list[RouteSummary] = []

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Everything is known now: the routes, and the step that training starts from."""
        request = self.request
        if not state.is_world_process_zero:
            return
        self.routes = list(context.get("routes") or ())
        adapter = context["adapter"]
        frozen = sum(p.numel() for p in adapter.module.parameters() if not p.requires_grad)
        say(f"\n{routes_table(self.routes, frozen)}", json_mode=request.json_mode)
        resumed = context.get("resumed_from")
        if resumed is not None:
            text = f"continuing from {Path(resumed).name} (step {state.global_step:,})"
            say(text, json_mode=request.json_mode)
        say(json_mode=request.json_mode)
        self.record = build_record(
            preset=request.composition.preset.name,
            overrides=request.composition.overrides,
            files=[source.path for source in request.composition.sources],
            config=request.values,
            experiment={"adapter": code_digest(type(adapter)), **self.experiment.record},
            data=[dataclasses.asdict(split) for split in self.experiment.data_report],
            stage=request.composition.stage,
            init_from=None if request.initial is None else request.initial.as_record(),
        )
        write_record(
            request.run_directory,
            self.record,
            request.yaml,
            state.global_step if resumed is not None else None,
        )
