"""KL divergence between the posterior of the audio and the prior of the text, through the flow."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from voicehub.errors import DataError
from voicehub.kernels import Loss
from voicehub_vits.losses.precision import widened


class MaskedSum(NamedTuple):
    """A loss before it is divided, so that the mean can be taken over a whole global batch.

    Attributes:
        sum: scalar, float32 or float64.
        count: scalar of the same dtype, what to divide by; without gradient.
    """

    sum: Tensor
    count: Tensor


def kl_divergence(
    z_p: Tensor, logs_q: Tensor, m_p: Tensor, logs_p: Tensor, mask: Tensor
) -> MaskedSum:
    """One-sample estimate of KL(q || p) over the valid frames (Kim et al. 2021, VITS, eq. 4).

    Each cell is ``logs_p - logs_q - 1/2 + 1/2 (z_p - m_p)^2 exp(-2 logs_p)``: the entropy of the
    posterior is exact, the cross-entropy is taken at the sample. Cells may be negative.

    Args:
        z_p: (batch, channels, frames), the posterior's sample after the flow.
        logs_q: the same shape, log deviations of the posterior.
        m_p, logs_p: the same shape, means and log deviations of the prior, laid out by alignment.
        mask: (batch, 1, frames), bool, 0 and 1, or weights of frames; a frame of 0 may hold
            anything.

    Returns:
        Weighted sum over cells in nats; count is the sum of the mask (not times channels), by
        which the published objective divides.

    Raises:
        DataError: the shapes differ.
    """
    shapes = {tuple(values.shape) for values in (z_p, logs_q, m_p, logs_p)}
    batch, _, frames = z_p.shape
    if len(shapes) != 1 or tuple(mask.shape) != (batch, 1, frames):
        raise DataError(
            "kl_divergence: z_p, logs_q, m_p, logs_p must have one shape (batch, channels, frames) "
            f"and the mask (batch, 1, frames); got {sorted(shapes)} and {tuple(mask.shape)}."
        )
    outside = mask == 0
    # Masked before anything is computed: 0 times the gradient of an infinity is no 0.
    distance = (widened(z_p) - widened(m_p)).masked_fill(outside, 0.0)
    prior = widened(logs_p).masked_fill(outside, 0.0)
    cells = prior - widened(logs_q).masked_fill(outside, 0.0) - 0.5
    cells = cells + 0.5 * distance.square() * torch.exp(-2.0 * prior)
    weights = mask.to(cells.dtype)
    return MaskedSum((cells * weights).sum(), weights.sum())


LOSS = Loss("vits.kl", {"kl_divergence": kl_divergence})
