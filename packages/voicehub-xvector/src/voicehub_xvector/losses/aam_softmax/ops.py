"""Margin softmax over classes in chunks, as an operator of ``torch``.

The matrix of cosines (B, C) never exists: the forward pass keeps a running log-sum, the backward
pass computes the cosines again. Matrix products stay with the BLAS.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from voicehub.errors import DataError
from voicehub.kernels import Loss
from voicehub.losses.blocks import padded
from voicehub.losses.operands import check_operands
from voicehub_xvector.losses.aam_softmax.chunks import accumulation_dtype, chunks, inverse_norms
from voicehub_xvector.losses.aam_softmax.margins import (
    margin_slope,
    penalty_slope,
    with_margin,
    with_penalty,
)
from voicehub_xvector.losses.aam_softmax.nearest import NearestClasses


def aam_softmax(
    embeddings: Tensor,
    weight: Tensor,
    labels: Tensor,
    *,
    scale: float,
    margin: float,
    angular: bool = True,
    sub_centres: int = 1,
    inter_top_k: int = 0,
    inter_margin: float = 0.0,
    class_chunk: int = 2048,
    check: bool | None = None,
) -> Tensor:
    """Return each item's loss; ``reference.aam_softmax_reference`` is the definition.

    Computed in float32 (float64 for float64 inputs), under autocast too. A zero embedding or
    prototype has cosine 0 with everything and no gradient.

    Args:
        embeddings: floating (B, D), of any length.
        weight: floating (C * K, D), sub-centre k of class c in row c * K + k; of any length.
        labels: int64 (B,), in [0, C).
        scale: factor of the cosines.
        margin: of the right class, radians where ``angular``, a cosine otherwise.
        sub_centres: K.
        inter_top_k: so many nearest wrong classes get ``inter_margin``; at most C - 1 count.
        class_chunk: prototypes compared at once; changes memory and rounding alone.
        check: raise for labels out of range; None does so where it needs no synchronisation with
            a device. Unchecked, such an item's loss is NaN and its gradient 0.

    Returns:
        (B,) losses, each >= 0 up to the effect of the margin.

    Raises:
        DataError: shapes, dtypes or devices do not fit, or (``check``) a label is out of range.
        UnsupportedTrainingError: forward-mode differentiation.
    """
    check_operands("aam_softmax", {"embeddings": embeddings, "weight": weight}, {"labels": labels})
    _check_shapes(embeddings, weight, labels, sub_centres)
    if check is None:
        check = labels.device.type == "cpu"
    near = min(inter_top_k, len(weight) // sub_centres - 1)
    # Products with a tensor, since a compiled graph is made anew for every other value of a number.
    one = torch.ones((), dtype=torch.float64)
    margins = torch.stack([one * margin, one * inter_margin])
    losses: Tensor = _forward(
        embeddings, weight, labels, margins, scale, angular, sub_centres, near, class_chunk, check
    )[0]
    return losses


def _check_shapes(embeddings: Tensor, weight: Tensor, labels: Tensor, sub_centres: int) -> None:
    if embeddings.ndim != 2 or weight.ndim != 2 or embeddings.shape[1] != weight.shape[1]:
        raise DataError(
            f"aam_softmax: embeddings {tuple(embeddings.shape)} and prototypes "
            f"{tuple(weight.shape)} must be (batch, size) and (classes * sub_centres, size)."
        )
    if labels.shape != embeddings.shape[:1] or labels.dtype != torch.int64:
        raise DataError(
            f"aam_softmax: labels {tuple(labels.shape)} of {labels.dtype} must be int64, one for "
            f"each of {embeddings.shape[0]} embeddings."
        )
    if sub_centres < 1 or weight.shape[0] % sub_centres or not weight.shape[0]:
        raise DataError(
            f"aam_softmax: {weight.shape[0]} prototypes cannot be shared out among classes of "
            f"{sub_centres} sub-centres."
        )


@torch.library.custom_op("voicehub_xvector::aam_softmax", mutates_args=())
def _forward(
    embeddings: Tensor,
    weight: Tensor,
    labels: Tensor,
    margins: Tensor,
    scale: float,
    angular: bool,
    sub_centres: int,
    inter_top_k: int,
    class_chunk: int,
    check: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Losses (B,), then for the backward pass: log-sums (B,), the right classes' cosines (B,), and
    cosines and ids (B, k) of the nearest wrong classes."""
    classes = len(weight) // sub_centres
    margin, inter_margin = margins.tolist()
    if check:
        _check_labels(labels, classes)
    dtype = accumulation_dtype(embeddings, weight)
    batch, labels = len(labels), padded(labels, 0, value=-1)
    x = padded(embeddings.to(dtype), 0, 1)
    x = x * inverse_norms(x).unsqueeze(1)
    inside = (labels >= 0) & (labels < classes)
    right = _right_cosines(x, weight, labels.clamp(0, classes - 1), sub_centres)
    logits = scale * with_margin(right, margin, angular)
    highest, total = logits.clone(), torch.ones_like(logits)
    near = NearestClasses(len(x), inter_top_k, classes, right)
    for chunk in chunks(x, weight, sub_centres, class_chunk):
        chunk.cosines.scatter_(1, chunk.column(labels).unsqueeze(1), -torch.inf)
        chunk.cosines[:, chunk.size :] = -torch.inf
        rest = near.take(chunk).mul_(scale)
        raised = torch.maximum(highest, rest.amax(1))
        sums = rest.sub_(raised.unsqueeze(1)).exp_().sum(1)
        total = total * (highest - raised).exp() + sums
        highest = raised
    log_sums = highest + total.log()
    if inter_top_k:
        nearest = scale * with_penalty(near.cosines, inter_margin, angular)
        log_sums = torch.logaddexp(log_sums, nearest.logsumexp(1))
    losses = torch.where(inside, log_sums - logits, torch.nan)
    results = (losses, log_sums, right, near.cosines, near.classes)
    return tuple(result[:batch].clone() for result in results)  # type: ignore[return-value]


def _check_labels(labels: Tensor, classes: int) -> None:
    wrong = ((labels < 0) | (labels >= classes)).nonzero().flatten()
    if len(wrong):
        position = int(wrong[0])
        raise DataError(
            f"aam_softmax: label {int(labels[position])} of item {position} is not among the "
            f"{classes} classes 0 .. {classes - 1}. The class map belongs to other data."
        )


def _right_cosines(x: Tensor, weight: Tensor, labels: Tensor, sub_centres: int) -> Tensor:
    """Cosine of each embedding with the nearest sub-centre of its own class: (B,)."""
    own = labels.unsqueeze(1) * sub_centres + torch.arange(sub_centres, device=labels.device)
    rows = padded(weight[own].to(x.dtype), 2)
    cosines = (rows * x.unsqueeze(1)).sum(2) * inverse_norms(rows)
    return cosines.amax(1).clamp(-1.0, 1.0)


@_forward.register_fake
def _(
    embeddings: Tensor,
    weight: Tensor,
    labels: Tensor,
    margins: Tensor,
    scale: float,
    angular: bool,
    sub_centres: int,
    inter_top_k: int,
    class_chunk: int,
    check: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    batch = embeddings.shape[0]
    dtype = accumulation_dtype(embeddings, weight)
    row = embeddings.new_empty(batch, dtype=dtype)
    near = embeddings.new_empty(batch, inter_top_k, dtype=dtype)
    ids = labels.new_empty(batch, inter_top_k)
    return row, torch.empty_like(row), torch.empty_like(row), near, ids


@torch.library.custom_op("voicehub_xvector::aam_softmax_backward", mutates_args=())
def _backward(
    gradient: Tensor,
    embeddings: Tensor,
    weight: Tensor,
    labels: Tensor,
    log_sums: Tensor,
    right: Tensor,
    near: Tensor,
    near_classes: Tensor,
    margins: Tensor,
    scale: float,
    angular: bool,
    sub_centres: int,
    class_chunk: int,
    for_embeddings: bool,
    for_weight: bool,
) -> tuple[Tensor, Tensor]:
    """Gradients of embeddings and weight; empty (0, D) where they are not asked for."""
    classes, dtype = len(weight) // sub_centres, log_sums.dtype
    margin, inter_margin = margins.tolist()
    batch, size = embeddings.shape
    inside = (labels >= 0) & (labels < classes)
    outer = padded(scale * torch.where(inside, gradient.to(dtype), 0.0), 0).unsqueeze(1)
    labels = padded(labels, 0, value=-1).unsqueeze(1)
    near_classes = padded(near_classes, 0, value=classes)
    log_sums, right = padded(log_sums, 0).unsqueeze(1), padded(right, 0).unsqueeze(1)
    near = padded(near, 0)
    x = padded(embeddings.to(dtype), 0, 1)
    lengths = inverse_norms(x).unsqueeze(1)
    x = x * lengths
    logit = scale * with_margin(right, margin, angular)
    for_right = ((logit - log_sums).exp() - 1.0) * margin_slope(right, margin, angular)
    nearest = (scale * with_penalty(near, inter_margin, angular) - log_sums).exp()
    for_near = nearest * penalty_slope(near, inter_margin, angular)
    dx = torch.zeros_like(x)
    dw = torch.empty_like(weight if for_weight else weight[:0])
    for chunk in chunks(x, weight, sub_centres, class_chunk):
        slopes = (chunk.cosines * scale).sub_(log_sums).exp_()
        slopes.scatter_(1, chunk.column(near_classes), for_near)
        slopes.scatter_(1, chunk.column(labels), for_right)
        slopes = chunk.spread(slopes.mul_(outer))
        along = (slopes * chunk.spread(chunk.cosines)).sum(0) * chunk.inverse_norms.square()
        slopes *= chunk.inverse_norms
        if for_embeddings:
            dx.addmm_(slopes, chunk.rows)
        if for_weight:
            part = dw[chunk.first * sub_centres :][: chunk.size * sub_centres]
            # Where nothing was padded or converted, the product goes straight to its place.
            direct = part.shape == (len(chunk.rows), x.shape[1]) and part.dtype is dtype
            product = part if direct else x.new_empty(len(chunk.rows), x.shape[1])
            torch.mm(slopes.t(), x, out=product)
            product.addcmul_(chunk.rows, along.unsqueeze(1), value=-1)
            if not direct:
                part.copy_(product[: len(part), :size])
    if not for_embeddings:
        return embeddings[:0].clone(), dw
    dx -= x * (x * dx).sum(1, keepdim=True)
    return (dx * lengths)[:batch, :size].to(embeddings.dtype).contiguous(), dw


@_backward.register_fake
def _(
    gradient: Tensor,
    embeddings: Tensor,
    weight: Tensor,
    labels: Tensor,
    log_sums: Tensor,
    right: Tensor,
    near: Tensor,
    near_classes: Tensor,
    margins: Tensor,
    scale: float,
    angular: bool,
    sub_centres: int,
    class_chunk: int,
    for_embeddings: bool,
    for_weight: bool,
) -> tuple[Tensor, Tensor]:
    return (
        torch.empty_like(embeddings if for_embeddings else embeddings[:0]),
        torch.empty_like(weight if for_weight else weight[:0]),
    )


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    embeddings, weight, labels, margins, scale, angular, sub_centres, _, chunk, _ = inputs
    _, log_sums, right, near, near_classes = output
    saved = (embeddings, weight, labels, log_sums, right, near, near_classes, margins)
    ctx.save_for_backward(*saved)
    ctx.settings = (scale, angular, sub_centres, chunk)
    ctx.mark_non_differentiable(log_sums, right, near, near_classes)


def _gradients(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    wanted = ctx.needs_input_grad[:2]
    de, dw = _backward(gradient, *ctx.saved_tensors, *ctx.settings, *wanted)
    return (de if wanted[0] else None, dw if wanted[1] else None, *(8 * [None]))


_forward.register_autograd(_gradients, setup_context=_save)
for _device in ("cpu", "cuda"):
    _forward.register_autocast(_device, torch.float32)

# Matrix products are all of it: no kernel of its own would be faster.
LOSS = Loss("xvector.aam_softmax", {"aam_softmax": aam_softmax})
