"""CTC on logits as one operator: log-softmax and loss together, with a deterministic gradient."""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.nn import functional

from voicehub.errors import DataError
from voicehub.kernels import KernelChoice, KernelPath
from voicehub.losses.operands import check_operands
from voicehub_asr_ctc.losses import _cpu

#: Labels that the Triton path takes; a batch with more is left to the native one.
MOST_TRITON_LABELS = 1023


@lru_cache(maxsize=1)
def _without_triton() -> str | None:
    if find_spec("triton") is None:
        return "triton is not installed: pip install 'voicehub-asr-ctc[triton]'"
    return None


KERNELS = KernelChoice(
    "asr_ctc.ctc",
    (
        KernelPath("c", ("cpu",), _cpu.LIBRARY.unavailable),
        KernelPath("triton", ("cuda",), _without_triton),
        KernelPath("native"),
    ),
)


def ctc_negative_log_likelihood(
    logits: Tensor,
    frame_lengths: Tensor,
    labels: Tensor,
    label_lengths: Tensor,
    *,
    blank: int,
    check: bool = True,
    kernel: str | None = None,
) -> Tensor:
    """Negative log-likelihood of each utterance (Graves et al. 2006), from logits.

    Args:
        logits: (batch, frames, tokens), any floating dtype; float64 is computed in float64, all
            else in float32 with sums in float64.
        frame_lengths: int64 (batch,), valid frames.
        labels: int64 (batch, most labels), anything behind an utterance's own.
        label_lengths: int64 (batch,).
        blank: id of the blank, which no label may be.
        check: raise on lengths or labels that do not fit; else such an item's loss is infinite
            and its gradient 0. An utterance without an alignment is treated so in either case. The
            native path, which would crash on them, always raises.
        kernel: ``c`` (CPU), ``triton`` (CUDA) or ``native`` (torch's own); None chooses by device
            and ``VOICEHUB_KERNELS``. The Triton path leaves tensors of more than 1,023 labels to
            the native path.

    Returns:
        (batch,), nats; float64 for float64, else float32.

    Raises:
        DataError: shapes, dtypes or devices do not fit, or, with ``check``, a length or a label.
        UnsupportedTrainingError: forward-mode differentiation.
    """
    _check_tensors(logits, frame_lengths, labels, label_lengths, blank)
    targets = (frame_lengths, labels, label_lengths)
    path = KERNELS.select(logits.device.type, kernel).path
    if path == "triton" and labels.shape[1] > MOST_TRITON_LABELS:
        path = "native"
    if path == "native" and not logits.is_meta:
        return _native(logits, *targets, blank)
    losses, _, _ = _ctc(logits, *targets, blank, check)
    return losses.to(_result_dtype(logits))


def _native(
    logits: Tensor, frame_lengths: Tensor, labels: Tensor, label_lengths: Tensor, blank: int
) -> Tensor:
    _check_values(logits, frame_lengths, labels, label_lengths, blank)
    if not logits.numel():  # torch refuses what has no frame
        nothing = logits.sum((1, 2), dtype=_result_dtype(logits))
        return nothing.masked_fill(label_lengths > 0, torch.inf)
    losses: Tensor = functional.ctc_loss(
        functional.log_softmax(logits, -1, dtype=_result_dtype(logits)).transpose(0, 1),
        labels,
        frame_lengths,
        label_lengths,
        blank=blank,
        reduction="none",
    )
    return losses


def _result_dtype(logits: Tensor) -> torch.dtype:
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


@torch.library.custom_op(
    "voicehub_asr_ctc::ctc",
    mutates_args=(),
    device_types="cpu",
    schema="(Tensor logits, Tensor frame_lengths, Tensor labels, Tensor label_lengths, int blank,"
    " bool check) -> (Tensor, Tensor, Tensor)",
)
def _ctc(logits, frame_lengths, labels, label_lengths, blank, check):  # type: ignore[no-untyped-def]
    if check:
        _check_values(logits, frame_lengths, labels, label_lengths, blank)
    return _cpu.forward(logits, frame_lengths, labels, label_lengths, blank)


@_ctc.register_kernel("cuda")
def _ctc_on_cuda(logits, frame_lengths, labels, label_lengths, blank, check):  # type: ignore[no-untyped-def]
    from voicehub_asr_ctc.losses import _triton

    if check:
        _check_values(logits, frame_lengths, labels, label_lengths, blank)
    with torch.cuda.device(logits.device):  # Triton launches on the current one
        return _triton.forward(logits, frame_lengths, labels, label_lengths, blank)


@_ctc.register_fake
def _(logits, frame_lengths, labels, label_lengths, blank, check):  # type: ignore[no-untyped-def]
    batch, frames, _ = logits.shape
    losses = logits.new_empty((batch,), dtype=torch.float64)
    peaks = logits.new_empty((batch, frames), dtype=_result_dtype(logits))
    return losses, peaks, logits.new_empty((batch, frames), dtype=torch.float64)


@torch.library.custom_op(
    "voicehub_asr_ctc::ctc_backward",
    mutates_args=(),
    device_types="cpu",
    schema="(Tensor upstream, Tensor logits, Tensor frame_lengths, Tensor labels, "
    "Tensor label_lengths, Tensor peaks, Tensor totals, int blank) -> Tensor",
)
def _ctc_backward(  # type: ignore[no-untyped-def]
    upstream, logits, frame_lengths, labels, label_lengths, peaks, totals, blank
):
    return _cpu.backward(
        upstream, logits, frame_lengths, labels, label_lengths, peaks, totals, blank
    )


@_ctc_backward.register_kernel("cuda")
def _ctc_backward_on_cuda(  # type: ignore[no-untyped-def]
    upstream, logits, frame_lengths, labels, label_lengths, peaks, totals, blank
):
    from voicehub_asr_ctc.losses import _triton

    with torch.cuda.device(logits.device):
        return _triton.backward(
            upstream, logits, frame_lengths, labels, label_lengths, peaks, totals, blank
        )


@_ctc_backward.register_fake
def _(upstream, logits, frame_lengths, labels, label_lengths, peaks, totals, blank):  # type: ignore[no-untyped-def]
    return torch.empty_like(logits, memory_format=torch.contiguous_format)


def _keep(ctx, inputs, output):  # type: ignore[no-untyped-def]
    logits, frame_lengths, labels, label_lengths, blank, _ = inputs
    _, peaks, totals = output
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(logits, frame_lengths, labels, label_lengths, peaks, totals)
    ctx.blank = blank


def _gradient(ctx, upstream, *unused):  # type: ignore[no-untyped-def]
    if upstream is None:
        return None, None, None, None, None, None
    return _ctc_backward(upstream, *ctx.saved_tensors, ctx.blank), None, None, None, None, None


_ctc.register_autograd(_gradient, setup_context=_keep)


def _check_tensors(
    logits: Tensor, frame_lengths: Tensor, labels: Tensor, label_lengths: Tensor, blank: int
) -> None:
    if logits.dim() != 3 or not logits.is_floating_point() or not 0 <= blank < logits.shape[2]:
        raise DataError(
            "ctc: expected floating logits (batch, frames, tokens) with the blank among the "
            f"tokens, got {logits.dtype} {tuple(logits.shape)} and blank {blank}."
        )
    batch = logits.shape[0]
    for name, values, shape in (
        ("frame_lengths", frame_lengths, (batch,)),
        ("label_lengths", label_lengths, (batch,)),
        ("labels", labels, (batch, labels.shape[-1] if labels.dim() else 0)),
    ):
        if values.dtype != torch.int64 or tuple(values.shape) != shape:
            raise DataError(
                f"ctc: {name} must be int64 {shape}, got {values.dtype} {tuple(values.shape)}."
            )
    check_operands(
        "ctc",
        {"logits": logits},
        {"frame_lengths": frame_lengths, "labels": labels, "label_lengths": label_lengths},
    )


def _check_values(
    logits: Tensor, frame_lengths: Tensor, labels: Tensor, label_lengths: Tensor, blank: int
) -> None:
    _, frames, tokens = logits.shape
    most = labels.shape[1]
    used = torch.arange(most, device=labels.device) < label_lengths[:, None]
    wrong = used & ((labels < 0) | (labels >= tokens) | (labels == blank))
    bad = (frame_lengths < 0) | (frame_lengths > frames)
    bad = bad | (label_lengths < 0) | (label_lengths > most) | wrong.any(1)
    if not bool(bad.any()):
        return
    item = int(bad.nonzero()[0])
    raise DataError(
        f"ctc: item {item} has {int(frame_lengths[item])} of {frames} frames and "
        f"{int(label_lengths[item])} of {most} labels {labels[item].tolist()[:16]}; lengths must "
        f"lie within the tensors, labels within 0 to {tokens - 1} and not be the blank, {blank}."
    )
