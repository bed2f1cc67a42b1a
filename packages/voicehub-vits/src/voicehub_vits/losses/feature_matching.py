"""Distance of real and generated audio inside the discriminators (Larsen et al. 2016)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from voicehub.errors import DataError
from voicehub.kernels import Loss
from voicehub_vits.losses.precision import widened

WEIGHT = 2.0  # of HiFi-GAN and VITS (Kong et al. 2020, eq. 8), part of the objective's definition


def feature_matching_loss(
    real_features: Sequence[Sequence[Tensor]], generated_features: Sequence[Sequence[Tensor]]
) -> Tensor:
    """2 times the sum over discriminators and layers of the mean absolute difference.

    Args:
        real_features: per discriminator, per layer, the activations of recorded audio; taken
            without gradient.
        generated_features: the same for generated audio, of the same shapes.

    Returns:
        Scalar.

    Raises:
        DataError: the numbers of discriminators or layers or the shapes differ, or there is none.
    """
    real = [layer for layers in real_features for layer in layers]
    generated = [layer for layers in generated_features for layer in layers]
    counts = (
        [len(layers) for layers in real_features],
        [len(layers) for layers in generated_features],
    )
    if counts[0] != counts[1] or not real:
        raise DataError(
            "feature_matching_loss: expected the same layers for both, got "
            f"{counts[0]} per discriminator for real and {counts[1]} for generated audio."
        )
    distances = []
    for number, (there, here) in enumerate(zip(real, generated, strict=True)):
        if there.shape != here.shape:
            raise DataError(
                f"feature_matching_loss: layer {number} is {tuple(there.shape)} for real and "
                f"{tuple(here.shape)} for generated audio."
            )
        distances.append(functional.l1_loss(widened(here), widened(there.detach())))
    return WEIGHT * torch.stack(distances).sum()


LOSS = Loss("vits.feature_matching", {"feature_matching": feature_matching_loss})
