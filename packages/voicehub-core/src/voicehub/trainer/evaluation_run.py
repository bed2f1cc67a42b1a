"""One evaluation of a run: its splits and tasks, with one kind of weights, as one log row."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from voicehub.adapters.evaluation import EvaluationContext
from voicehub.errors import ConfigurationError
from voicehub.trainer.averaging import Weights, weights_in_use
from voicehub.trainer.evaluation import (
    Evaluator,
    SplitResult,
    means_over_splits,
    prefixed,
    run_tasks,
)
from voicehub.trainer.feed import default_plan

if TYPE_CHECKING:
    from voicehub.trainer.trainer import Trainer


def evaluate_splits(trainer: Trainer, splits: Mapping[str, Any], prefix: str) -> dict[str, float]:
    """Evaluate with the weights that ``eval_weights`` names, and log a row for each kind.

    Raises:
        ConfigurationError: with ``both``, a split is named ``ema``, as are the averages' metrics.
    """
    chosen = trainer.args.eval_weights
    if chosen != "both":
        return _evaluate_with(trainer, chosen, splits, prefix)
    if "ema" in splits:
        raise ConfigurationError(
            f"With eval_weights='both' the metrics of averaged weights are named '{prefix}_ema_…', "
            "and so would be those of the evaluation set 'ema'. Rename the set."
        )
    metrics = _evaluate_with(trainer, "raw", splits, prefix)
    metrics.update(_evaluate_with(trainer, "ema", splits, f"{prefix}_ema"))
    return metrics


def _evaluate_with(
    trainer: Trainer, weights: Weights, splits: Mapping[str, Any], prefix: str
) -> dict[str, float]:
    trainer.graph  # noqa: B018 - averages start with the graph
    metrics: dict[str, float] = {}
    with weights_in_use(trainer.averaging, weights):
        for split, data in splits.items():
            result = run_split(trainer, data, split or "eval", keep_predictions=False)
            metrics.update(prefixed(result.metrics, f"{prefix}_{split}" if split else prefix))
        if len(splits) > 1 or "" not in splits:
            metrics.update(means_over_splits(metrics, prefix, list(splits)))
        if trainer.evaluation_tasks:
            context = _context(trainer, weights, prefix)
            metrics.update(run_tasks(trainer.evaluation_tasks, context, metrics))
    row: dict[str, Any] = dict(metrics)
    if trainer.averaging is not None:
        row["weights"] = weights
        if weights == "ema":
            row["start_share"] = trainer.averaging.ema.start_share()
    trainer.log(row, prefix=prefix, splits=tuple(splits))
    trainer.strategy.barrier()  # callbacks take longer on the process that reports
    return metrics


def _context(trainer: Trainer, weights: Weights, prefix: str) -> EvaluationContext:
    # What is heard and seen says of which weights it is, where there are two kinds.
    shown_as = prefix
    if trainer.averaging is not None:
        shown_as = f"{prefix.removesuffix('_ema')}_{weights}"

    def log_media(media: Mapping[str, Any]) -> None:
        trainer.log_media({f"{shown_as}/{name}": shown for name, shown in media.items()})

    # Only the world-primary process shows media, but all of them must go the same way.
    wanted = trainer.strategy.any_rank(trainer.wants_media)
    return EvaluationContext(
        adapter=trainer.graph.adapter,
        strategy=trainer.strategy,
        device=trainer.graph.device,
        step=trainer.state.global_step,
        weights=weights,
        prefix=prefix,
        wants_media=wanted,
        log_media=log_media,
    )


def run_split(trainer: Trainer, dataset: Any, name: str, *, keep_predictions: bool) -> SplitResult:
    """Run one data set through the evaluation phase, with the weights as they are."""
    graph = trainer.graph
    # A plan belongs to the split it was made for, not to whatever is evaluated under its name.
    own = trainer.eval_dataset
    own = own.get(name) if isinstance(own, Mapping) else own
    planned = trainer.eval_plans.get(name) if dataset is own else None
    plan = planned or default_plan(dataset, trainer.args, training=False)
    evaluator = Evaluator(
        model=graph.model,
        adapter=graph.adapter,
        strategy=trainer.strategy,
        label_names=trainer.args.label_names,
        compute_metrics=trainer.compute_metrics,
        preprocess_logits=trainer.preprocess_logits_for_metrics,
        on_batch=lambda: trainer.fire("on_prediction_step"),
    )
    with contextlib.closing(trainer.feed(dataset, plan)) as feed:
        return evaluator.run(
            feed,
            name,
            loss_only=trainer.args.prediction_loss_only,
            keep_predictions=keep_predictions,
        )
