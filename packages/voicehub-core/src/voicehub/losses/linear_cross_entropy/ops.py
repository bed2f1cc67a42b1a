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
from voicehub.losses.blocks import padded
from voicehub.losses.operands import check_operands

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
    of the two factors. Equal inputs give equal bits, whatever the number of threads.

    Args:
        hidden: floating (N, H).
        weight: floating (heads, V, H), without bias.
        labels: int64 (N, heads), in [0, V); ``IGNORED`` where a position does not count.
        position_weights: floating (N, heads), finite; all 1 by default. Gets no gradient.
        head_weights: floating (heads,); all 1 by default. Gets no gradient.
        chunk: rows multiplied at once; changes memory and rounding alone.
        check: raise for labels out of range; None does so on the CPU, where it needs no
            synchronisation with a device. Unchecked, such a label costs NaN and has no gradient.

    Raises:
        DataError: shapes, dtypes or devices do not fit, or (``check``) a label is out of range.
        UnsupportedTrainingError: forward-mode differentiation.
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
    factors = {"position_weights": position_weights, "head_weights": head_weights}
    targets = {name: tensor for name, tensor in factors.items() if tensor is not None}
    check_operands(
        "linear_cross_entropy", {"hidden": hidden, "weight": weight}, {"labels": labels, **targets}
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
    dtype = position_weights.dtype
    sums = torch.zeros(weight.shape[0], dtype=torch.float64, device=hidden.device)
    counts = torch.zeros_like(sums)
    to_hidden = hidden.new_zeros(hidden.shape if hidden_gradient else (0,), dtype=dtype)
    to_weight = weight.new_zeros(weight.shape if weight_gradient else (0,), dtype=dtype)
    # Autocast would narrow the products, and with them the gradients.
    with torch.autocast(hidden.device.type, enabled=False):
        for head, matrix in enumerate(weight):
            sums[head], counts[head] = _head(
                hidden,
                matrix,
                labels[:, head],
                position_weights[:, head],
                head_weights[head],
                chunk,
                to_hidden if hidden_gradient else None,
                to_weight[head] if weight_gradient else None,
            )
    total = (sums * head_weights.double()).sum().to(dtype)
    return total, sums, counts, to_hidden.to(hidden.dtype), to_weight.to(weight.dtype)


def _head(
    hidden: Tensor,
    matrix: Tensor,
    labels: Tensor,
    factors: Tensor,
    share: Tensor,
    chunk: int,
    to_hidden: Tensor | None,
    to_matrix: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Weighted sum of one head's losses, and the weight in it; adds ``share`` of the gradients."""
    dtype, (vocabulary, size) = factors.dtype, matrix.shape
    wide = torch.promote_types(hidden.dtype, matrix.dtype)
    matrix = padded(matrix.to(wide), 0, 1)
    grown = to_matrix
    if to_matrix is not None and matrix.shape != to_matrix.shape:
        grown = to_matrix.new_zeros(matrix.shape)
    total = torch.zeros((), dtype=torch.float64, device=hidden.device)
    count = torch.zeros_like(total)
    rows = (labels != IGNORED).nonzero().flatten()
    for part in torch.split(rows, max(1, chunk)):
        states = padded(hidden.index_select(0, part).to(wide), 0, 1)
        mine, own = labels.index_select(0, part), factors.index_select(0, part)
        outside = (mine < 0) | (mine >= vocabulary)
        product = states @ matrix.T
        if product.dtype in (torch.float16, torch.bfloat16):
            product = product.float()
        losses = _to_slope(
            product, vocabulary, mine.masked_fill(outside, 0), own.masked_fill(outside, 0.0) * share
        )
        total += (losses.masked_fill_(outside, torch.nan) * own).sum(dtype=torch.float64)
        count += own.sum(dtype=torch.float64)
        if to_hidden is None and grown is None:
            continue
        narrow = product.to(wide)
        if to_hidden is not None:
            to_hidden.index_add_(0, part, (narrow @ matrix)[: len(part), :size].to(dtype))
        if grown is not None:
            grown.addmm_(narrow.T.to(dtype), states.to(dtype))
    if to_matrix is not None and grown is not None and grown is not to_matrix:
        to_matrix.copy_(grown[:vocabulary, :size])
    return total, count


def _to_slope(product: Tensor, vocabulary: int, labels: Tensor, factors: Tensor) -> Tensor:
    """The losses (rows,); the padded logits become the gradient of their sum times ``factors``."""
    logits, own = product[: len(labels), :vocabulary], labels.unsqueeze(1)
    right = logits.gather(1, own)
    peaks = logits.amax(1, keepdim=True)
    sums = logits.sub_(peaks).exp_().sum(1, keepdim=True)
    factors = factors.unsqueeze(1)
    logits.mul_(factors / sums)
    logits.scatter_(1, own, logits.gather(1, own) - factors)
    product[len(labels) :] = 0.0
    product[:, vocabulary:] = 0.0
    return (sums.log() + (peaks - right)).squeeze(1)


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


@torch.library.custom_op("voicehub::linear_cross_entropy_backward", mutates_args=())
def _scaled(total: Tensor, to_hidden: Tensor, to_weight: Tensor) -> tuple[Tensor, Tensor]:
    """An operator, since these products would have a second derivative, and a wrong one: what the
    saved gradients depend on is gone."""
    return to_hidden * total.to(to_hidden.dtype), to_weight * total.to(to_weight.dtype)


@_scaled.register_fake
def _(total: Tensor, to_hidden: Tensor, to_weight: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(to_hidden), torch.empty_like(to_weight)


def _backward(ctx: Any, total: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    hidden, weight = _scaled(total, *ctx.saved_tensors)
    wants_hidden, wants_weight = ctx.wanted
    found = hidden if wants_hidden else None, weight if wants_weight else None
    return *found, None, None, None, None, None, None, None


_forward.register_autograd(_backward, setup_context=_keep)
