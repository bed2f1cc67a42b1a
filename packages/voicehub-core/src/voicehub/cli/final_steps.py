"""What follows the weights at the end of a run: each step may fail, and harms nothing before it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from voicehub.adapters.experiment import FinalContext, FinalStep
from voicehub.reporting.summary import RunSummary
from voicehub.trainer.averaging import Weights, describe_weights, weights_in_use
from voicehub.trainer.evaluation import evaluation_mode, prefixed

if TYPE_CHECKING:
    from voicehub.reporting.samples import SampleSheet
    from voicehub.trainer.trainer import Trainer

logger = logging.getLogger(__name__)


def attempt(
    failures: list[str], what: str, action: Callable[..., Any], *arguments: Any
) -> Any | None:
    """Run what the weights do not depend on; a failure is added to what is told at the end."""
    try:
        return action(*arguments)
    except Exception as error:
        logger.debug("%s failed.", what, exc_info=True)
        failures.append(f"{what} failed: {type(error).__name__}: {error}")
        return None


def run_final_steps(
    trainer: Trainer, model: Any, steps: list[FinalStep], summary: RunSummary
) -> list[SampleSheet]:
    """Run the steps with each kind of weights that the run's evaluations are of.

    Called on the first process, or on all of them where each holds a part of the weights. What
    the steps measure becomes a row of ``metrics.jsonl`` and a part of the summary.

    Returns:
        What they have made to look at.
    """
    sheets: list[SampleSheet] = []
    if not steps:
        return sheets
    for weights, prefix in _evaluated(trainer):
        context = FinalContext(
            model=model,
            weights=weights,
            manifest=describe_weights(trainer.averaging, weights),
            step=trainer.state.global_step,
            directory=trainer.run_dir,
        )
        with (
            weights_in_use(trainer.averaging, weights),
            evaluation_mode(trainer.adapter),
            trainer.strategy.open_model(trainer.graph.model),
        ):
            for step in steps:
                found = attempt(summary.failures, _title(step, trainer, weights), step.run, context)
                if found:
                    _keep(trainer, summary, prefixed(found, prefix), weights)
        sheets += context.sheets
    return sheets


def _evaluated(trainer: Trainer) -> list[tuple[Weights, str]]:
    """The kinds of weights that evaluations are of, and how their metrics are called."""
    chosen = trainer.args.eval_weights
    if chosen == "both":
        return [("raw", "eval"), ("ema", "eval_ema")]
    return [(chosen, "eval")]


def _title(step: FinalStep, trainer: Trainer, weights: Weights) -> str:
    name = step.name or type(step).__name__
    return name if trainer.averaging is None else f"{name} ({weights} weights)"


def _keep(
    trainer: Trainer, summary: RunSummary, metrics: dict[str, float], weights: Weights
) -> None:
    row: dict[str, Any] = dict(metrics)
    if trainer.averaging is not None:
        row["weights"] = weights
        summary.metric_weights.update(dict.fromkeys(metrics, weights))
    trainer.log(row)
    summary.metrics.update(metrics)
    summary.final_metrics += list(metrics)
