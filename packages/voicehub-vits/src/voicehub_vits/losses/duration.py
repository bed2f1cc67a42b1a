"""Losses of the duration predictors: sums over text positions, and what to divide them by."""

from __future__ import annotations

from torch import Tensor

from voicehub.errors import DataError
from voicehub.kernels import Loss
from voicehub_vits.losses.kl import MaskedSum
from voicehub_vits.losses.precision import widened


def stochastic_duration_loss(negative_log_likelihood: Tensor, mask: Tensor) -> MaskedSum:
    """Of a stochastic predictor, which returns one number an utterance (Kim et al. 2021).

    Args:
        negative_log_likelihood: (batch,), nats, the (weighted) sum over each utterance's text.
        mask: (batch, 1, text), bool, 0 and 1, or the weights of that sum.

    Returns:
        Sum over utterances; count is the sum of the mask.

    Raises:
        DataError: the shapes do not fit.
    """
    if negative_log_likelihood.shape != mask.shape[:1] or mask.dim() != 3:
        raise DataError(
            "stochastic_duration_loss: expected likelihoods (batch,) and a mask (batch, 1, text), "
            f"got {tuple(negative_log_likelihood.shape)} and {tuple(mask.shape)}."
        )
    total = widened(negative_log_likelihood).sum()
    return MaskedSum(total, mask.to(total.dtype).sum())


def deterministic_duration_loss(
    log_durations: Tensor, aligned_frames: Tensor, mask: Tensor
) -> MaskedSum:
    """Squared error of predicted log durations (Kim et al. 2020, Glow-TTS).

    Args:
        log_durations: (batch, 1, text), predicted, natural logarithm of frames.
        aligned_frames: (batch, 1, text), frames of each position on the maximum path, at least 1
            where the mask is set; taken without gradient.
        mask: (batch, 1, text), bool, 0 and 1, or weights of positions; a position of 0 may hold
            anything.

    Returns:
        Weighted sum of ``(log_durations - log(aligned_frames))^2``; count is the sum of the mask.

    Raises:
        DataError: the shapes differ.
    """
    shapes = {tuple(values.shape) for values in (log_durations, aligned_frames, mask)}
    if len(shapes) != 1:
        raise DataError(
            f"deterministic_duration_loss: expected one shape (batch, 1, text), got {shapes}."
        )
    outside = mask == 0
    predicted = widened(log_durations).masked_fill(outside, 0.0)
    target = aligned_frames.detach().to(predicted.dtype).masked_fill(outside, 1.0).log()
    weights = mask.to(predicted.dtype)
    return MaskedSum(((predicted - target).square() * weights).sum(), weights.sum())


LOSS = Loss(
    "vits.duration",
    {"stochastic": stochastic_duration_loss, "deterministic": deterministic_duration_loss},
)
