"""Reporters by name: callbacks of installed plugins, loaded only when ``report_to`` names them."""

from __future__ import annotations

from typing import Any, cast

from voicehub.errors import ConfigurationError
from voicehub.plugins import loading
from voicehub.suggest import did_you_mean
from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.callbacks import TrainerCallback

_GROUP = "voicehub.reporters"


def make_reporters(args: TrainingArguments) -> list[TrainerCallback]:
    """One callback for each name in ``args.report_to``.

    Raises:
        ConfigurationError: no installed distribution offers that reporter.
    """
    reporters = []
    for name in args.report_to:
        installed = loading.names(_GROUP)
        if name not in installed:
            raise ConfigurationError(
                f"report_to names '{name}', which no installed package offers "
                f"(installed: {', '.join(sorted(installed)) or 'none'}). Install "
                f"'voicehub-{name}', or remove it.{did_you_mean(name, installed)}"
            )
        factory: Any = loading.load(_GROUP, name)
        reporters.append(cast(TrainerCallback, factory(args)))
    return reporters
