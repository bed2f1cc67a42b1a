"""Which evaluation counts as the best so far."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping

from voicehub.checkpoints.layout import checkpoint_name
from voicehub.errors import ConfigurationError
from voicehub.suggest import did_you_mean
from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.state import TrainerState

logger = logging.getLogger(__name__)


def metric_value(metrics: Mapping[str, float], name: str) -> float | None:
    """The value of a metric named with or without its ``eval_`` prefix; None when absent."""
    for key in (name, f"eval_{name}"):
        if key in metrics:
            return float(metrics[key])
    return None


def required_metric(metrics: Mapping[str, float], name: str) -> float:
    """The value of a metric that a run depends on.

    Raises:
        ConfigurationError: it is not among those computed.
    """
    value = metric_value(metrics, name)
    if value is None:
        short = [key.removeprefix("eval_") for key in metrics]
        raise ConfigurationError(
            f"metric_for_best_model='{name}' was not computed; this evaluation gave "
            f"{', '.join(sorted(metrics))}.{did_you_mean(name, [*short, *metrics])}"
        )
    return value


def update_best(
    args: TrainingArguments, state: TrainerState, metrics: Mapping[str, float], *, saving: bool
) -> bool:
    """Record an evaluation in ``state``; NaN and infinity are never among the best.

    Args:
        saving: whether a checkpoint of this step is written whatever comes out here.

    Returns:
        Whether ``metrics`` are among the best ``save_best_limit`` so far.

    Raises:
        ConfigurationError: the watched metric is not among those computed.
    """
    name = args.metric_for_best_model or "loss"
    value = required_metric(metrics, name)
    if not math.isfinite(value):
        logger.warning("%s is %s at step %d: not considered best.", name, value, state.global_step)
        return False
    best = state.best_metric
    is_best = best is None or (value > best if args.greater_is_better else value < best)
    if is_best:
        state.best_metric = value
        state.best_global_step = state.global_step
    if not (saving or args.load_best_model_at_end):
        return False
    name = checkpoint_name(state.global_step)
    # The earlier of two equal evaluations stays ahead.
    ranked = sorted(
        [*state.best_checkpoints, (name, value)],
        key=lambda kept: -kept[1] if args.greater_is_better else kept[1],
    )[: args.save_best_limit]
    state.best_checkpoints = ranked
    if is_best:
        state.best_model_checkpoint = name
    return any(kept == name for kept, _ in ranked)
