"""Divergences of token distributions, frame by frame, that regularise CTC; no tensor is kept.

Both read logits once for the value and once for the gradient, an item at a time, and add up in
float64. What lies behind an item's frames has no influence, whatever it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from voicehub.errors import DataError
from voicehub.losses.operands import check_operands


def uniform_divergence(logits: Tensor, frame_lengths: Tensor) -> Tensor:
    """KL divergence of each frame's distribution from the uniform one, summed over an item.

    The regulariser of label smoothing for CTC (Kim et al. 2018, section 3.2):
    ``KL(uniform || p) = -log V - mean(log p)``.

    Args:
        logits: (batch, frames, tokens), any floating dtype, at least one token.
        frame_lengths: int64 (batch,).

    Returns:
        (batch,), nats, float64 for float64 logits, else float32.

    Raises:
        DataError: shapes, dtypes or devices do not fit.
        UnsupportedTrainingError: forward-mode differentiation.
    """
    _check("uniform_divergence", {"logits": logits}, frame_lengths)
    found: Tensor = _uniform(logits, frame_lengths)
    return found


def consistency(one: Tensor, two: Tensor, frame_lengths: Tensor) -> Tensor:
    """How much two views of the same utterances disagree, summed over an item's frames.

    ``(KL(sg(q) || p) + KL(sg(p) || q)) / 2`` (Yao et al. 2024, CR-CTC, equation 3), where ``sg``
    stops the gradient: each view is taught by the other, and neither is pulled apart.

    Args:
        one, two: (batch, frames, tokens), of one floating dtype, at least one token.
        frame_lengths: int64 (batch,).

    Returns:
        (batch,), nats, float64 for float64 logits, else float32.

    Raises:
        DataError: shapes, dtypes or devices do not fit.
        UnsupportedTrainingError: forward-mode differentiation.
    """
    _check("consistency", {"one": one, "two": two}, frame_lengths)
    found: Tensor = _consistency(one, two, frame_lengths)
    return found


def _check(name: str, views: Mapping[str, Tensor], frame_lengths: Tensor) -> None:
    check_operands(name, views, {"frame_lengths": frame_lengths})
    first, *others = views.values()
    alike = all((other.shape, other.dtype) == (first.shape, first.dtype) for other in others)
    if first.dim() != 3 or not first.shape[2] or not alike:
        shapes = ", ".join(f"{view.dtype} {tuple(view.shape)}" for view in views.values())
        raise DataError(
            f"{name}: expected logits (batch, frames, tokens) of one shape and dtype, with at "
            f"least one token, got {shapes}."
        )
    if frame_lengths.dtype != torch.int64 or frame_lengths.shape != first.shape[:1]:
        raise DataError(
            f"{name}: frame_lengths must be int64 ({first.shape[0]},), got "
            f"{frame_lengths.dtype} {tuple(frame_lengths.shape)}."
        )


def _wide(logits: Tensor) -> torch.dtype:
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


def _sums(logits: Tensor) -> Tensor:
    # Apple's GPUs have no float64.
    dtype = torch.float32 if logits.device.type == "mps" else torch.float64
    return torch.zeros(logits.shape[0], dtype=dtype, device=logits.device)


def _behind(logits: Tensor, frame_lengths: Tensor, item: int) -> Tensor:
    """bool (frames,): frames that do not count."""
    return torch.arange(logits.shape[1], device=logits.device) >= frame_lengths[item]


@torch.library.custom_op(
    "voicehub_asr_ctc::uniform_divergence",
    mutates_args=(),
    schema="(Tensor logits, Tensor frame_lengths) -> Tensor",
)
def _uniform(logits, frame_lengths):  # type: ignore[no-untyped-def]
    sums = _sums(logits)
    for item in range(len(sums)):
        rows = logits[item].to(_wide(logits))
        values = rows.logsumexp(-1) - rows.mean(-1) - math.log(rows.shape[1])
        values = values.masked_fill_(_behind(logits, frame_lengths, item), 0.0)
        sums[item] = values.sum(dtype=sums.dtype)
    return sums.to(_wide(logits))


@_uniform.register_fake
def _(logits, frame_lengths):  # type: ignore[no-untyped-def]
    return logits.new_empty((logits.shape[0],), dtype=_wide(logits))


@torch.library.custom_op(
    "voicehub_asr_ctc::uniform_divergence_backward",
    mutates_args=(),
    schema="(Tensor upstream, Tensor logits, Tensor frame_lengths) -> Tensor",
)
def _uniform_backward(upstream, logits, frame_lengths):  # type: ignore[no-untyped-def]
    gradient = torch.empty_like(logits, memory_format=torch.contiguous_format)
    for item in range(logits.shape[0]):
        slope = logits[item].to(_wide(logits)).softmax(-1).sub_(1.0 / logits.shape[2])
        slope.mul_(upstream[item])
        gradient[item] = slope.masked_fill_(_behind(logits, frame_lengths, item)[:, None], 0.0)
    return gradient


@_uniform_backward.register_fake
def _(upstream, logits, frame_lengths):  # type: ignore[no-untyped-def]
    return torch.empty_like(logits, memory_format=torch.contiguous_format)


def _keep_uniform(ctx, inputs, output):  # type: ignore[no-untyped-def]
    ctx.save_for_backward(*inputs)


def _uniform_gradient(ctx, upstream):  # type: ignore[no-untyped-def]
    return _uniform_backward(upstream, *ctx.saved_tensors), None


_uniform.register_autograd(_uniform_gradient, setup_context=_keep_uniform)


@torch.library.custom_op(
    "voicehub_asr_ctc::consistency",
    mutates_args=(),
    schema="(Tensor one, Tensor two, Tensor frame_lengths) -> Tensor",
)
def _consistency(one, two, frame_lengths):  # type: ignore[no-untyped-def]
    sums = _sums(one)
    for item in range(len(sums)):
        logs = one[item].to(_wide(one)).log_softmax(-1)
        others = two[item].to(_wide(one)).log_softmax(-1)
        # Both divergences in one: (p - q) (log p - log q), 0 where both are impossible.
        apart = (logs - others).masked_fill_(logs == others, 0.0)
        values = logs.exp_().sub_(others.exp_()).mul_(apart).sum(-1)
        values = values.masked_fill_(_behind(one, frame_lengths, item), 0.0)
        sums[item] = 0.5 * values.sum(dtype=sums.dtype)
    return sums.to(_wide(one))


@_consistency.register_fake
def _(one, two, frame_lengths):  # type: ignore[no-untyped-def]
    return one.new_empty((one.shape[0],), dtype=_wide(one))


@torch.library.custom_op(
    "voicehub_asr_ctc::consistency_backward",
    mutates_args=(),
    schema="(Tensor upstream, Tensor one, Tensor two, Tensor frame_lengths) -> (Tensor, Tensor)",
)
def _consistency_backward(upstream, one, two, frame_lengths):  # type: ignore[no-untyped-def]
    to_one = torch.empty_like(one, memory_format=torch.contiguous_format)
    to_two = torch.empty_like(two, memory_format=torch.contiguous_format)
    for item in range(one.shape[0]):
        slope = one[item].to(_wide(one)).softmax(-1)
        slope.sub_(two[item].to(_wide(one)).softmax(-1)).mul_(0.5 * upstream[item])
        slope.masked_fill_(_behind(one, frame_lengths, item)[:, None], 0.0)
        to_one[item], to_two[item] = slope, -slope
    return to_one, to_two


@_consistency_backward.register_fake
def _(upstream, one, two, frame_lengths):  # type: ignore[no-untyped-def]
    return tuple(
        torch.empty_like(values, memory_format=torch.contiguous_format) for values in (one, two)
    )


def _keep_both(ctx, inputs, output):  # type: ignore[no-untyped-def]
    ctx.save_for_backward(*inputs)


def _consistency_gradient(ctx, upstream):  # type: ignore[no-untyped-def]
    return (*_consistency_backward(upstream, *ctx.saved_tensors), None)


_consistency.register_autograd(_consistency_gradient, setup_context=_keep_both)
