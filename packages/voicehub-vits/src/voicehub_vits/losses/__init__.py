"""The losses of VITS: alignment, KL, adversarial, feature matching, mel, duration."""

from __future__ import annotations

from voicehub_vits.losses.adversarial import (
    DiscriminatorLoss,
    GeneratorLoss,
    discriminator_loss,
    generator_loss,
)
from voicehub_vits.losses.duration import deterministic_duration_loss, stochastic_duration_loss
from voicehub_vits.losses.feature_matching import feature_matching_loss
from voicehub_vits.losses.kl import MaskedSum, kl_divergence
from voicehub_vits.losses.mel import mel_l1
from voicehub_vits.losses.monotonic_alignment import dense_path, maximum_path

__all__ = [
    "DiscriminatorLoss",
    "GeneratorLoss",
    "MaskedSum",
    "dense_path",
    "deterministic_duration_loss",
    "discriminator_loss",
    "feature_matching_loss",
    "generator_loss",
    "kl_divergence",
    "maximum_path",
    "mel_l1",
    "stochastic_duration_loss",
]
