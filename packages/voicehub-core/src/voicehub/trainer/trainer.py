"""The Trainer: what users call. Parts are wired in ``composition``, the loop is in ``loop``."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch.optim import Optimizer

from voicehub.adapters.base import TrainingAdapter
from voicehub.adapters.evaluation import EvaluationTask
from voicehub.checkpoints.reader import open_checkpoint
from voicehub.data.plan import BatchPlan
from voicehub.errors import ConfigurationError
from voicehub.optim.schedules import Scheduler
from voicehub.passes.contract import OptimizationContext
from voicehub.passes.plan import MANIFEST_FILE, OptimizationPlan
from voicehub.strategies.base import TrainingStrategy
from voicehub.strategies.registry import resolve_strategy
from voicehub.trainer import composition, passes, saving
from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.averaging import (
    AVERAGED_MODEL,
    Weights,
    averaged_tensors,
    describe_weights,
    explain_start,
    weights_in_use,
)
from voicehub.trainer.best import required_metric, update_best
from voicehub.trainer.callbacks import CallbackHandler, TrainerCallback
from voicehub.trainer.custom_loss import LossFunction, make_custom_loss
from voicehub.trainer.default_callbacks import default_callbacks, make_averaging
from voicehub.trainer.evaluation import (
    ComputeMetrics,
    PredictionOutput,
    PreprocessLogits,
    prefixed,
)
from voicehub.trainer.evaluation_run import evaluate_splits, run_split
from voicehub.trainer.feed import (
    Collator,
    ColumnFilter,
    DataFeed,
    choose_collator,
    default_plan,
    require_dataset,
)
from voicehub.trainer.media import Media
from voicehub.trainer.model_files import model_files
from voicehub.trainer.progress import run_metrics
from voicehub.trainer.start import StartedRun, start_run
from voicehub.trainer.state import TrainerControl, TrainerState

logger = logging.getLogger(__name__)


class TrainOutput(NamedTuple):
    """Result of ``Trainer.train``."""

    global_step: int
    training_loss: float
    metrics: dict[str, float]


class Trainer:
    """Trains a model or a recipe, evaluates it, and writes checkpoints that resume exactly.

    Args:
        model: an ``nn.Module`` or a VoiceHub model wrapper.
        args: settings; the defaults of ``TrainingArguments`` when left out.
        data_collator: builds a batch from items; else the dataset's ``collate_fn``, else the
            adapter's, else the structural default.
        train_dataset: map-style dataset with a length.
        eval_dataset: a dataset, or a mapping of split names to datasets.
        processing_class: saved with the model, never applied to data.
        model_init: builds the model instead of ``model``; called once, after seeding.
        compute_loss_func: see ``CustomLoss``; refused with multi-phase recipes.
        compute_metrics: gets an ``EvalPrediction`` over a whole split.
        callbacks: ``TrainerCallback`` instances or classes.
        optimizers: a ready (optimizer, scheduler) for a recipe with one route; either may be None.
        optimizer_cls_and_kwargs: optimizer class and options, used for every route.
        preprocess_logits_for_metrics: ``(logits, labels)`` to what is kept for metrics.
        training_adapter: the recipe; found by model type when left out.
        optimizer_factory: ``(route, named_parameters, args)`` to an optimizer.
        scheduler_factory: ``(route, optimizer, num_training_steps, args)`` to a scheduler.
        training_strategy: name or instance; ``torch`` (one process) by default.
        optimization_plan: persistent passes over the model, applied before optimizers exist;
            one that compiles with ``args.torch_compile``, otherwise none.
        optimization_context: where the plan is applied; derived from the run by default.
        train_plan: order and batches of the training data; fixed-size shuffled by default.
        eval_plans: plans of the evaluation splits by name (``"eval"`` for a single one).
        evaluation_tasks: what evaluations measure or show beside their splits.

    Raises:
        ConfigurationError: two arguments contradict each other.
    """

    def __init__(
        self,
        model: Any = None,
        args: TrainingArguments | None = None,
        data_collator: Collator | None = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: Any = None,
        model_init: Callable[[], Any] | None = None,
        compute_loss_func: LossFunction | None = None,
        compute_metrics: ComputeMetrics | None = None,
        callbacks: Sequence[TrainerCallback | type[TrainerCallback]] | None = None,
        optimizers: tuple[Optimizer | None, Scheduler | None] = (None, None),
        optimizer_cls_and_kwargs: tuple[type[Optimizer], Mapping[str, Any]] | None = None,
        preprocess_logits_for_metrics: PreprocessLogits | None = None,
        training_adapter: TrainingAdapter | None = None,
        optimizer_factory: composition.OptimizerFactory | None = None,
        scheduler_factory: composition.SchedulerFactory | None = None,
        training_strategy: str | TrainingStrategy | None = None,
        optimization_plan: OptimizationPlan | None = None,
        optimization_context: OptimizationContext | None = None,
        *,
        train_plan: BatchPlan | None = None,
        eval_plans: Mapping[str, BatchPlan] | None = None,
        evaluation_tasks: Sequence[EvaluationTask] = (),
    ) -> None:
        self.args = args if args is not None else TrainingArguments()
        if not isinstance(self.args, TrainingArguments):
            raise TypeError(f"args must be TrainingArguments, got {type(self.args).__name__}.")
        self.sources = composition.OptimizationSources(
            *optimizers, optimizer_cls_and_kwargs, optimizer_factory, scheduler_factory
        )
        composition.check_exclusive(model, model_init, training_adapter, self.sources)
        self.data_collator = data_collator
        self.train_dataset = train_dataset
        self.eval_dataset = eval_dataset
        self.processing_class = processing_class
        self.compute_metrics = compute_metrics
        self.preprocess_logits_for_metrics = preprocess_logits_for_metrics
        self.train_plan = train_plan
        self.eval_plans = dict(eval_plans or {})
        self.evaluation_tasks = tuple(evaluation_tasks)
        self.strategy = resolve_strategy(training_strategy, self.args)
        self.optimization_plan = passes.choose_plan(
            optimization_plan, optimization_context, self.args
        )
        self.optimization_context = optimization_context
        if model_init is not None:
            composition.seed_everything(self.args.seed)
            model = model_init()
        self.model = model
        self.adapter = composition.make_adapter(model, training_adapter)
        self.custom_loss = make_custom_loss(compute_loss_func, self.adapter, self.args)
        self.state = TrainerState(
            is_world_process_zero=self.strategy.is_primary,
            is_local_process_zero=self.strategy.is_local_primary,
        )
        self.control = TrainerControl()
        self.averaging = make_averaging(self.args)
        self.callbacks = CallbackHandler(
            [*default_callbacks(self.args, self.averaging, self.alert), *(callbacks or ())]
        )
        self._graph: composition.Graph | None = None
        self._run: StartedRun | None = None
        self._final_model: tuple[int, Path] | None = None
        self.extra_checkpoint_files: dict[str, Callable[[Path], None]] = {}
        self.fire("on_init_end")

    # What users call.

    def add_callback(self, callback: TrainerCallback | type[TrainerCallback]) -> None:
        """Append a callback."""
        self.callbacks.add(callback)

    def remove_callback(
        self, callback: TrainerCallback | type[TrainerCallback]
    ) -> TrainerCallback | None:
        """Take a callback out, by instance or class, and return it."""
        return self.callbacks.remove(callback)

    @property
    def graph(self) -> composition.Graph:
        """The set-up model, adapter and optimizers; built on first use."""
        if self._graph is None:
            self._graph = composition.build_graph(
                self.adapter,
                self.strategy,
                self.args,
                self.sources,
                self.optimization_plan,
                self.optimization_context,
            )
            if self.optimization_plan is not None:
                self.extra_checkpoint_files[MANIFEST_FILE] = functools.partial(
                    saving.write_json, value=self.optimization_plan.manifest()
                )
            self.extra_checkpoint_files.update(
                model_files(self._graph.adapter, self.processing_class)
            )
            if self.averaging is not None:
                self.averaging.bind(self._graph.adapter, self.strategy)
            self.callbacks.context.update(
                model=self.model,
                adapter=self.adapter,
                optimizers=self._graph.optimizers,
                trainer=self,
            )
        return self._graph

    @property
    def run_dir(self) -> Path:
        """``args.output_dir``."""
        return Path(self.args.output_dir)

    def train(self, resume_from_checkpoint: bool | str | Path | None = None) -> TrainOutput:
        """Train until the horizon, early stopping or an error.

        Args:
            resume_from_checkpoint: True takes the newest complete checkpoint of ``output_dir``, a
                path takes that one; None and False start anew.

        Raises:
            FileNotFoundError: there is nothing to resume from.
            FileExistsError: ``output_dir`` holds another run's checkpoints.
            CheckpointMismatchError: the checkpoint belongs to another plan.
            NonFiniteError: too many updates in a row were not finite.
            ConfigurationError: the run is complete already.
        """
        if self.state.global_step:
            raise ConfigurationError(
                f"This Trainer stands at step {self.state.global_step}: its schedule and data "
                "position are used up. To continue, build a new Trainer with a longer horizon and "
                "load_weights(); to resume an interrupted run, use resume_from_checkpoint in a new "
                "Trainer."
            )
        self._run = start_run(self, resume_from_checkpoint)
        began = time.perf_counter()
        first_step = self.state.global_step
        self.adapter.train_mode()
        try:
            self.fire("on_train_begin", resumed_from=self._run.restored_from)
            self._run.loop.run()
            self._finish_averages()
            self._run.saver.settle(wait=True)
            self.strategy.barrier()  # a checkpoint that the first process wrote is complete now
            if self.args.load_best_model_at_end:
                self._load_best()
        except BaseException as error:
            self.strategy.report_failure(error)
            self._run.saver.abandon()
            self.fire("on_train_error", error=error)
            raise
        finally:
            self._run.feed.close()
        metrics = run_metrics(
            self.state,
            seconds=time.perf_counter() - began,
            first_step=first_step,
            samples=self._run.loop.samples_read,
        )
        self.fire("on_train_end", metrics=metrics)
        return TrainOutput(self.state.global_step, metrics["train_loss"], metrics)

    def evaluate(
        self, eval_dataset: Any = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Evaluate one dataset or several named splits.

        Returns:
            ``<prefix>_<metric>`` for one dataset; ``<prefix>_<split>_<metric>`` for several, and
            then also ``<prefix>_<metric>``, the mean of each metric over the splits. They are of
            the weights that ``args.eval_weights`` names; with ``both`` the averaged ones are
            ``<prefix>_ema_...`` beside the raw ones. With averages each logged row says which
            ``weights`` it is of.
        """
        dataset = self.eval_dataset if eval_dataset is None else eval_dataset
        require_dataset(dataset, "eval_dataset")
        splits = dataset if isinstance(dataset, Mapping) else {"": dataset}
        if set(splits) == {metric_key_prefix}:  # eval_eval_loss would say nothing more
            splits = {"": splits[metric_key_prefix]}
        metrics = evaluate_splits(self, splits, metric_key_prefix)
        self.fire("on_evaluate", metrics=metrics)
        return metrics

    def predict(self, test_dataset: Any, metric_key_prefix: str = "test") -> PredictionOutput:
        """Predictions, labels and metrics of a dataset; labels are optional."""
        require_dataset(test_dataset, "test_dataset")
        self.graph  # noqa: B018 - averages start with the graph
        with weights_in_use(self.averaging, "ema" if self.args.eval_weights == "ema" else "raw"):
            result = run_split(self, test_dataset, "test", keep_predictions=True)
        metrics = prefixed(result.metrics, metric_key_prefix)
        self.fire("on_predict", metrics=metrics, prefix=metric_key_prefix)
        return PredictionOutput(result.predictions, result.label_ids, metrics)

    def save_model(
        self,
        output_dir: str | Path | None = None,
        *,
        include_native_export: bool = True,
        weights: Weights = "raw",
    ) -> Path:
        """Write the portable artifact, a native export under ``native_export/`` included.

        An older artifact in the same place is replaced only once the new one is complete.

        Args:
            output_dir: ``final-model`` in the run directory by default.
            include_native_export: also in the layout of the library the model comes from.
            weights: ``raw``, or ``ema`` for the averages; ``training_recipe.json`` says which.
        """
        target = Path(output_dir) if output_dir is not None else self.run_dir / "final-model"
        adapter = self.graph.adapter
        include_native_export &= passes.check_export(self.optimization_plan, adapter)

        def write(directory: Path) -> None:
            adapter.save_pretrained(directory, native_export=include_native_export)
            saving.complete_recipe_manifest(
                directory, adapter, describe_weights(self.averaging, weights)
            )
            saving.write_json(directory / "training_args.json", self.args.to_dict())
            if self.processing_class is not None:
                self.processing_class.save_pretrained(directory)

        with (
            weights_in_use(self.averaging, weights),
            self.strategy.whole_model(self.graph.model),
        ):
            self.strategy.on_primary(
                lambda: str(saving.replace_directory(target, write)), what="the model to be saved"
            )
        return target

    def save_final_model(self) -> Path:
        """``final-model/`` of these weights: written once, however many ask for it."""
        step = self.state.global_step
        if self._final_model is None or self._final_model[0] != step:
            self._final_model = (step, self.save_model())
        return self._final_model[1]

    def save_averaged_model(self) -> Path:
        """``final-model-ema/``, beside ``final-model/``, of the averages that this run keeps.

        Raises:
            ConfigurationError: it keeps none.
        """
        return self.save_model(self.run_dir / AVERAGED_MODEL, weights="ema")

    def load_weights(self, checkpoint: str | Path, *, weights: Weights = "raw") -> None:
        """Warm start: the weights of a complete checkpoint, raw or averaged, and nothing else."""
        opened = open_checkpoint(Path(checkpoint))
        tensors = averaged_tensors(opened) if weights == "ema" else opened.tensors()
        with self.strategy.whole_model(self.graph.model, write_back=True):
            self.graph.adapter.load_state_dict(tensors)
        if self.averaging is not None:
            self.averaging.reset()
        self._final_model = None

    def get_train_dataloader(self) -> Any:
        """Micro-batches of the first epoch, as the loop reads them."""
        return self.train_feed().batches(0)

    def alert(self, name: str, advice: str) -> None:
        """Tell the user of trouble: a row in the metrics file, and ``on_alert``.

        The log has it too, unless a callback shows alerts itself: nobody reads it twice.
        """
        text = f"{name}: {advice}."
        if not any(getattr(known, "shows_alerts", False) for known in self.callbacks.callbacks):
            logger.warning("%s", text)
        self.log({"alert": text})
        self.fire("on_alert", alert=text)

    @property
    def wants_media(self) -> bool:
        """Whether any callback shows media: without one they need not be computed."""
        return self.state.is_world_process_zero and self.callbacks.listens("on_media")

    def log_media(self, media: Mapping[str, Media]) -> None:
        """Hand audio, pictures and texts, by names such as ``eval/sample``, to the reporters."""
        if self.wants_media:
            self.fire("on_media", media=dict(media))

    # Wiring.

    def train_feed(self) -> DataFeed:
        """The training data in the order of its plan."""
        dataset = require_dataset(self.train_dataset, "train_dataset")
        return self.feed(
            dataset, self.train_plan or default_plan(dataset, self.args, training=True)
        )

    def feed(self, dataset: Any, plan: BatchPlan) -> DataFeed:
        """A data set in the order of a plan, collated for this model."""
        adapter = self.graph.adapter
        return DataFeed(
            dataset=dataset,
            plan=plan,
            collate_fn=choose_collator(self.data_collator, dataset, adapter),
            args=self.args,
            strategy=self.strategy,
            device=self.graph.device,
            columns=ColumnFilter(
                adapter, keep=self.args.label_names, enabled=self.args.remove_unused_columns
            ),
        )

    # What the loop asks for.

    def fire(self, event: str, **context: Any) -> None:
        """Call an event on every callback that listens to it; other processes wait as long."""
        with self.strategy.at_work(f"callbacks of {event}"):
            self.callbacks.fire(event, self.args, self.state, self.control, **context)

    def log(self, values: Mapping[str, Any], **context: Any) -> None:
        """Append a row to the log history and tell the callbacks.

        Context of an evaluation: ``prefix`` of its metrics, and the names of its ``splits``.
        """
        row = {
            "step": self.state.global_step,
            "epoch": self.state.epoch,
            "time": round(time.time(), 3),
            **values,
        }
        self.state.log_history.append(row)
        self.fire("on_log", logs=row, **context)

    def evaluate_in_training(self, saving: bool) -> bool:
        """Evaluate, let a plateau schedule follow, and say whether this is among the best.

        Args:
            saving: whether a checkpoint of this step is written in any case.
        """
        assert self._run is not None
        metrics = self.evaluate()
        if self.args.lr_scheduler_type == "plateau":
            name = self.args.metric_for_best_model or "loss"
            self._run.schedulers.step_metric(required_metric(metrics, name))
        return self.args.wants_best_model and update_best(
            self.args, self.state, metrics, saving=saving
        )

    def save_checkpoint(self) -> None:
        """Copy the state of this step and start writing its checkpoint."""
        assert self._run is not None
        self.fire("on_save")
        self.strategy.barrier()  # callbacks take longer on the process that reports
        self._run.saver.save(self.state)

    def report_saved(self, path: Path) -> None:
        """Tell the callbacks that a checkpoint is complete on disk."""
        self.fire("on_checkpoint_saved", checkpoint=path)

    def _finish_averages(self) -> None:
        """Store the last averages, and say it where they are still much of the first weights."""
        if self.averaging is None:
            return
        self.averaging.finish()
        advice = explain_start(self.averaging)
        if advice:
            self.alert("averaged-start", advice)

    def _load_best(self) -> None:
        name = self.state.best_model_checkpoint
        if name is None:
            made = self.state.last_evaluation_step > 0
            logger.warning(
                "%s: the last weights are kept as the final ones.",
                "No evaluation was finite"
                if made
                else "load_best_model_at_end has nothing to choose from, for no evaluation was due "
                "during training (eval_strategy, eval_steps)",
            )
            return
        best = open_checkpoint(self.run_dir / name)
        with self.strategy.whole_model(self.graph.model, write_back=True):
            self.graph.adapter.load_state_dict(best.tensors())
        if self.averaging is not None:
            self.callbacks.load_state_of(self.averaging, best.runtime()["callbacks"])
        logger.info("Loaded the best weights, of %s.", name)
