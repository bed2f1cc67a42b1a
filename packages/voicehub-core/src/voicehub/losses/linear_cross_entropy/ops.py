"""Hidden states times several heads to cross-entropy, in chunks, gradients made on the way.

The logits of a chunk are turned into their own gradient in place and used at once, so that what
is kept for the backward pass are the gradients of hidden states and heads: the logits of all
positions, and their gradient, are never there. Rows without a label are skipped.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from voicehub.errors import DataError
from voicehub.kernels import Loss

#: Label of a position that does not count.
IGNORED = -100


class LinearCrossEntropy(NamedTuple):
    """What a batch costs.

    Attributes:
        total: scalar, the sum over heads and positions of head weight times position weight times
            cross-entropy; gradients flow through it.
        sums: float64 (heads,), the same for each head without its head weight; detached.
        counts: float64 (heads,), the position weights that went into each sum.
    """

    total: Tensor
    sums: Tensor
    counts: Tensor


def linear_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    *,
    position_weights: Tensor | None = None,
    head_weights: Tensor | None = None,
    chunk: int = 256,
    check: bool | None = None,
) -> LinearCrossEntropy:
    """Cross-entropy of every head; ``reference.linear_cross_entropy_reference`` is the definition.

    Sums are float64, softmax float32 (float64 for float64 inputs); products have the wider dtype
    of the two factors. Results do not depend on what ran before: equal inputs, equal bits.

    Args:
        hidden: floating (N, H).
        weight: floating (heads, V, H), without bias.
        labels: int64 (N, heads), in [0, V); ``IGNORED`` where a position does not count.
        position_weights: floating (N, heads), finite; all 1 by default. Gets no gradient.
        head_weights: floating (heads,); all 1 by default. Gets no gradient.
        chunk: rows multiplied at once; changes memory and rounding alone.
        check: raise for labels out of range; None does so on the CPU, where it needs no
            synchronisation with a device.

    Raises:
        DataError: shapes do not fit, or (``check``) a label is out of range.
    """
    _check_shapes(hidden, weight, labels, position_weights, head_weights)
    heads = weight.shape[0]
    dtype = torch.float64 if hidden.dtype == torch.float64 else torch.float32
    if position_weights is None:
        position_weights = torch.ones(labels.shape, dtype=dtype, device=hidden.device)
    if head_weights is None:
        head_weights = torch.ones(heads, dtype=dtype, device=hidden.device)
    enabled = torch.is_grad_enabled()
    checked = labels.device.type == "cpu" if check is None else check
    total, sums, counts, _, _ = _forward(
        hidden,
        weight,
        labels,
        position_weights.detach().to(dtype),
        head_weights.detach().to(dtype),
        chunk,
        enabled and hidden.requires_grad,
        enabled and weight.requires_grad,
        checked,
    )
    return LinearCrossEntropy(total, sums.detach(), counts.detach())


LOSS = Loss("core.linear_cross_entropy", {"linear_cross_entropy": linear_cross_entropy})


def _check_shapes(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    position_weights: Tensor | None,
    head_weights: Tensor | None,
) -> None:
    if hidden.ndim != 2 or weight.ndim != 3 or hidden.shape[1] != weight.shape[2]:
        raise DataError(
            f"linear_cross_entropy: hidden states {tuple(hidden.shape)} and heads "
            f"{tuple(weight.shape)} must be (rows, size) and (heads, vocabulary, size)."
        )
    expected = (hidden.shape[0], weight.shape[0])
    if labels.shape != expected or labels.dtype != torch.int64:
        raise DataError(
            f"linear_cross_entropy: labels {tuple(labels.shape)} of {labels.dtype} must be int64 "
            f"{expected}, one for each row and head."
        )
    if position_weights is not None and position_weights.shape != expected:
        raise DataError(
            f"linear_cross_entropy: position_weights {tuple(position_weights.shape)} must be "
            f"{expected}, as the labels are."
        )
    if head_weights is not None and head_weights.shape != weight.shape[:1]:
        raise DataError(
            f"linear_cross_entropy: head_weights {tuple(head_weights.shape)} must be "
            f"({weight.shape[0]},), one for each head."
        )


@torch.library.custom_op("voicehub::linear_cross_entropy", mutates_args=())
def _forward(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    position_weights: Tensor,
    head_weights: Tensor,
    chunk: int,
    hidden_gradient: bool,
    weight_gradient: bool,
    check: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Total, sums and counts (heads,), then the gradients of the total, empty where not wanted."""
    if check:
        _check_labels(labels, weight.shape[1])
    heads, dtype = weight.shape[0], position_weights.dtype
    # Autocast would narrow the products, and with them the gradients.
    with torch.autocast(hidden.device.type, enabled=False):
        sums = torch.zeros(heads, dtype=torch.float64, device=hidden.device)
        counts = torch.zeros_like(sums)
        to_hidden = torch.zeros(
            hidden.shape if hidden_gradient else (0,), dtype=dtype, device=hidden.device
        )
        to_weight = torch.zeros(
            weight.shape if weight_gradient else (0,), dtype=dtype, device=hidden.device
        )
        for head in range(heads):
            rows = (labels[:, head] != IGNORED).nonzero().flatten()
            for part in torch.split(rows, max(1, chunk)):
                factors = position_weights[part, head]
                logits, losses, states = _logits(hidden, weight[head], labels[:, head], part)
                sums[head] += (losses * factors).sum(dtype=torch.float64)
                counts[head] += factors.sum(dtype=torch.float64)
                if not (hidden_gradient or weight_gradient):
                    continue
                slope = logits.mul_((factors * head_weights[head]).unsqueeze(1))
                narrow = slope.to(states.dtype)
                if hidden_gradient:
                    to_hidden.index_add_(
                        0, part, (narrow @ weight[head].to(narrow.dtype)).to(dtype)
                    )
                if weight_gradient:
                    to_weight[head].addmm_(narrow.T.to(dtype), states.to(dtype))
        total = (sums * head_weights.double()).sum().to(dtype)
    return (
        total,
        sums,
        counts,
        to_hidden.to(hidden.dtype),
        to_weight.to(weight.dtype),
    )


def _logits(
    hidden: Tensor, matrix: Tensor, labels: Tensor, part: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradient of the losses by the logits (rows, V), losses (rows,), and the hidden states."""
    wide = torch.promote_types(hidden.dtype, matrix.dtype)
    states = hidden.index_select(0, part).to(wide)
    logits = states @ matrix.to(wide).T
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    own = labels.index_select(0, part).unsqueeze(1)
    right = logits.gather(1, own)
    log_sums = logits.logsumexp(1, keepdim=True)
    losses = (log_sums - right).squeeze(1)
    slope = logits.sub_(log_sums).exp_()
    slope.scatter_(1, own, slope.gather(1, own) - 1.0)
    return slope, losses, states


def _check_labels(labels: Tensor, vocabulary: int) -> None:
    wrong = (((labels < 0) & (labels != IGNORED)) | (labels >= vocabulary)).nonzero()
    if len(wrong):
        row, head = wrong[0].tolist()
        raise DataError(
            f"linear_cross_entropy: label {int(labels[row, head])} of row {row} and head {head} is "
            f"neither {IGNORED} nor one of 0 to {vocabulary - 1}."
        )


@_forward.register_fake
def _(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    position_weights: Tensor,
    head_weights: Tensor,
    chunk: int,
    hidden_gradient: bool,
    weight_gradient: bool,
    check: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    heads = weight.shape[0]
    sums = hidden.new_empty(heads, dtype=torch.float64)
    return (
        hidden.new_empty((), dtype=position_weights.dtype),
        sums,
        torch.empty_like(sums),
        hidden.new_empty(hidden.shape if hidden_gradient else (0,)),
        weight.new_empty(weight.shape if weight_gradient else (0,)),
    )


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.wanted = inputs[6], inputs[7]
    ctx.save_for_backward(output[3], output[4])


def _backward(ctx: Any, total: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    to_hidden, to_weight = ctx.saved_tensors
    wants_hidden, wants_weight = ctx.wanted
    hidden = to_hidden * total.to(to_hidden.dtype) if wants_hidden else None
    weight = to_weight * total.to(to_weight.dtype) if wants_weight else None
    return hidden, weight, None, None, None, None, None, None, None


_forward.register_autograd(_backward, setup_context=_keep)
