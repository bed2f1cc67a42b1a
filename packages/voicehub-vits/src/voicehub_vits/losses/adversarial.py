"""Least-squares adversarial losses over several discriminators (Mao et al. 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from voicehub.errors import DataError
from voicehub.kernels import Loss
from voicehub_vits.losses.precision import widened


class DiscriminatorLoss(NamedTuple):
    """What the discriminators minimise.

    Attributes:
        loss: scalar, the sum of both parts over all discriminators; 0 is perfect, 1/2 a
            discriminator is undecided (it says 1/2 to everything).
        real: (discriminators,), mean of ``(1 - D(x))^2``; without gradient.
        generated: (discriminators,), mean of ``D(G(z))^2``; without gradient.
    """

    loss: Tensor
    real: Tensor
    generated: Tensor


class GeneratorLoss(NamedTuple):
    """What the generator minimises.

    Attributes:
        loss: scalar, the sum over all discriminators.
        generated: (discriminators,), mean of ``(1 - D(G(z)))^2``; without gradient.
    """

    loss: Tensor
    generated: Tensor


def discriminator_loss(
    real_logits: Sequence[Tensor], generated_logits: Sequence[Tensor]
) -> DiscriminatorLoss:
    """Sum over discriminators of mean ``(1 - D(x))^2`` plus mean ``D(G(z))^2``.

    Args:
        real_logits: one tensor a discriminator, any shape, for recorded audio.
        generated_logits: the same for generated audio, from detached input.

    Raises:
        DataError: the numbers of discriminators differ or are 0.
    """
    _check("discriminator_loss", len(real_logits), len(generated_logits))
    real = torch.stack([(1.0 - widened(scores)).square().mean() for scores in real_logits])
    generated = torch.stack([widened(scores).square().mean() for scores in generated_logits])
    return DiscriminatorLoss((real + generated).sum(), real.detach(), generated.detach())


def generator_loss(generated_logits: Sequence[Tensor]) -> GeneratorLoss:
    """Sum over discriminators of mean ``(1 - D(G(z)))^2``.

    Args:
        generated_logits: one tensor a discriminator, any shape.

    Raises:
        DataError: there is no discriminator.
    """
    _check("generator_loss", len(generated_logits), len(generated_logits))
    parts = torch.stack([(1.0 - widened(scores)).square().mean() for scores in generated_logits])
    return GeneratorLoss(parts.sum(), parts.detach())


def _check(name: str, real: int, generated: int) -> None:
    if real != generated or real == 0:
        raise DataError(
            f"{name}: expected logits of the same discriminators for both, got {real} for real "
            f"and {generated} for generated audio."
        )


LOSS = Loss("vits.adversarial", {"discriminator": discriminator_loss, "generator": generator_loss})
