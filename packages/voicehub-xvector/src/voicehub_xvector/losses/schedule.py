"""How the margin grows at the start of a training run."""

from __future__ import annotations

import math

from voicehub.errors import ConfigurationError
from voicehub_xvector.loss_config import LossConfig


def warmup_share(position: float, length: float) -> float:
    """``min(1, position / length)``; 1 where ``length`` is 0.

    Raises:
        ConfigurationError: a negative or non-finite argument.
    """
    for name, value in (("position", position), ("length", length)):
        if not (math.isfinite(value) and value >= 0):
            raise ConfigurationError(f"warmup_share: {name} must be finite and >= 0, got {value}.")
    return 1.0 if length == 0 else min(1.0, position / length)


def margin_scale(config: LossConfig, *, step: int, epoch: float) -> float:
    """Share of the margins that counts, in [0, 1].

    A pure function of the position, so a resumed run goes on where it stopped.

    Args:
        config: says how long the margins grow, and in what unit.
        step: updates done since the start of the run.
        epoch: epochs done; the margin grows within an epoch where it is broken.
    """
    position = step if config.margin_warmup_unit == "step" else epoch
    return warmup_share(position, config.margin_warmup)
