"""The callbacks that every run has, by its settings."""

from __future__ import annotations

from collections.abc import Callable

from voicehub.plugins import hooks
from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.averaging import AveragingCallback, EMACallback
from voicehub.trainer.callbacks import EarlyStoppingCallback, TrainerCallback
from voicehub.trainer.freezing import FreezeCallback
from voicehub.trainer.health import HealthCallback
from voicehub.trainer.metrics_file import MetricsFile
from voicehub.trainer.posthoc import PostHocEMACallback
from voicehub.trainer.reporters import make_reporters


def make_averaging(args: TrainingArguments) -> AveragingCallback | None:
    """The keeper of averaged weights that the settings ask for; None where they ask for none."""
    if args.posthoc_ema:
        return PostHocEMACallback(args)
    return EMACallback(args) if args.ema_decay is not None else None


def default_callbacks(
    args: TrainingArguments, averaging: AveragingCallback | None, alert: Callable[[str, str], None]
) -> list[TrainerCallback | type[TrainerCallback]]:
    """Return them in the order in which they are called, reporters and those of plugins last."""
    found: list[TrainerCallback | type[TrainerCallback]] = [MetricsFile(), HealthCallback(alert)]
    if averaging is not None:
        found.append(averaging)
    if any(not rule.is_permanent for rule in args.freeze):
        found.append(FreezeCallback())
    if args.early_stopping_patience is not None:
        found.append(
            EarlyStoppingCallback(args.early_stopping_patience, args.early_stopping_threshold)
        )
    return [*found, *make_reporters(args, alert), *hooks.callbacks(args)]
