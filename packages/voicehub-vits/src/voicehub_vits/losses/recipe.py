"""The losses of the recipe, fetched by their registered names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from voicehub.kernels import load_loss

Function = Callable[..., Any]


@dataclass(frozen=True)
class RecipeLosses:
    """The functions of ``voicehub.losses`` that the objective is made of."""

    maximum_path: Function
    kl: Function
    discriminator: Function
    generator: Function
    feature_matching: Function
    mel: Function
    stochastic_duration: Function
    deterministic_duration: Function


@lru_cache(maxsize=1)
def recipe_losses() -> RecipeLosses:
    """Fetch them, once per process; the adapter's set-up asks first.

    Raises:
        PluginError: one of them is not registered, disabled, or cannot be imported.
    """
    adversarial = load_loss("vits.adversarial").functions
    duration = load_loss("vits.duration").functions
    return RecipeLosses(
        maximum_path=load_loss("vits.monotonic_alignment"),
        kl=load_loss("vits.kl"),
        discriminator=adversarial["discriminator"],
        generator=adversarial["generator"],
        feature_matching=load_loss("vits.feature_matching"),
        mel=load_loss("vits.mel"),
        stochastic_duration=duration["stochastic"],
        deterministic_duration=duration["deterministic"],
    )
