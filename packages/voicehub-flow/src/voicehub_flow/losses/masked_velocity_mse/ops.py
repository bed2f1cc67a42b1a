"""Masked velocity error as one operator: path velocity, difference and sum without a tensor."""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from voicehub.errors import DataError
from voicehub.kernels import KernelChoice, KernelPath, Loss
from voicehub.losses.operands import check_operands
from voicehub_flow.losses.masked_velocity_mse import _cpu, _torch


@lru_cache(maxsize=1)
def _without_triton() -> str | None:
    if find_spec("triton") is None:
        return "triton is not installed: pip install 'voicehub-flow[triton]'"
    return None


KERNELS = KernelChoice(
    "flow.masked_velocity_mse",
    (
        KernelPath("c", ("cpu",), _cpu.LIBRARY.unavailable),
        KernelPath("triton", ("cuda",), _without_triton),
        KernelPath("torch"),
    ),
)


def masked_velocity_error(
    prediction: Tensor,
    noise: Tensor,
    data: Tensor,
    mask: Tensor,
    *,
    min_sigma: float = 0.0,
    kernel: str | None = None,
) -> Tensor:
    """Squared error of the predicted velocity of each item, summed over valid frames and channels.

    The velocity of the straight path ``x_t = (1 - (1 - min_sigma) t) noise + t data`` is
    ``data - (1 - min_sigma) noise`` (Lipman et al. 2023, equation 23). Differences are float32
    (float64 where an input is float64), sums float64. Equal inputs give equal bits, whatever the
    number of threads.

    Args:
        prediction: (batch, frames, channels), float32, float64, bfloat16 or float16.
        noise: the same shape, any of these dtypes.
        data: the same shape, any of these dtypes.
        mask: bool (batch, frames), True where a frame counts; what lies elsewhere, NaN included,
            has no influence and gets a gradient of 0.
        min_sigma: what is left of the noise at t = 1.
        kernel: ``c`` (CPU), ``triton`` (CUDA) or ``torch``; None chooses by device and
            ``VOICEHUB_KERNELS``.

    Returns:
        (batch,), float32, or float64 where an input is float64; 0 for an item without a frame.
        Divide by valid frames times channels for the mean.

    Raises:
        DataError: shapes, dtypes or devices do not fit.
        UnsupportedTrainingError: forward-mode differentiation.
    """
    _check(prediction, noise, data, mask)
    errors: Tensor = _error(prediction, noise, data, mask, float(min_sigma), kernel or "")
    return errors


LOSS = Loss("flow.masked_velocity_mse", {"masked_velocity_error": masked_velocity_error}, KERNELS)


def _path(prediction: Tensor, kernel: str) -> Any:
    """The module whose ``forward`` and ``backward`` run."""
    path = KERNELS.select(prediction.device.type, kernel or None).path
    if path == "c":
        return _cpu
    if path == "triton":
        from voicehub_flow.losses.masked_velocity_mse import _triton

        return _triton
    return _torch


def _run(name: str, prediction: Tensor, kernel: str, *arguments: Any) -> Any:
    """Call ``forward`` or ``backward`` of the path, on the prediction's device."""
    function = getattr(_path(prediction, kernel), name)
    if not prediction.is_cuda:
        return function(*arguments)
    with torch.cuda.device(prediction.device):  # Triton launches on the current one
        return function(*arguments)


@torch.library.custom_op(
    "voicehub_flow::masked_velocity_error",
    mutates_args=(),
    schema="(Tensor prediction, Tensor noise, Tensor data, Tensor mask, float min_sigma, "
    "str kernel) -> Tensor",
)
def _error(prediction, noise, data, mask, min_sigma, kernel):  # type: ignore[no-untyped-def]
    return _run("forward", prediction, kernel, prediction, noise, data, mask, min_sigma)


@_error.register_fake
def _(prediction, noise, data, mask, min_sigma, kernel):  # type: ignore[no-untyped-def]
    return prediction.new_empty(
        (prediction.shape[0],), dtype=_torch.wide_dtype(prediction, noise, data)
    )


@torch.library.custom_op(
    "voicehub_flow::masked_velocity_error_backward",
    mutates_args=(),
    schema="(Tensor upstream, Tensor prediction, Tensor noise, Tensor data, Tensor mask, "
    "float min_sigma, str kernel) -> Tensor",
)
def _error_backward(  # type: ignore[no-untyped-def]
    upstream, prediction, noise, data, mask, min_sigma, kernel
):
    arguments = (upstream, prediction, noise, data, mask, min_sigma)
    return _run("backward", prediction, kernel, *arguments)


@_error_backward.register_fake
def _(upstream, prediction, noise, data, mask, min_sigma, kernel):  # type: ignore[no-untyped-def]
    return torch.empty_like(prediction, memory_format=torch.contiguous_format)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.min_sigma, ctx.kernel = inputs
    ctx.save_for_backward(*tensors)


def _gradient(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
    prediction, noise, data, mask = ctx.saved_tensors
    own, to_noise, to_data = ctx.needs_input_grad[:3]
    if to_noise or to_data:  # rare: a dtype that all three gradients can be taken from
        prediction = prediction.to(_torch.wide_dtype(prediction, noise, data))
    slope = _error_backward(upstream, prediction, noise, data, mask, ctx.min_sigma, ctx.kernel)
    return (
        slope.to(ctx.saved_tensors[0].dtype) if own else None,
        ((1.0 - ctx.min_sigma) * slope).to(noise.dtype) if to_noise else None,
        slope.neg().to(data.dtype) if to_data else None,
        None,
        None,
        None,
    )


_error.register_autograd(_gradient, setup_context=_keep)


def _check(prediction: Tensor, noise: Tensor, data: Tensor, mask: Tensor) -> None:
    if prediction.dim() != 3:
        raise DataError(
            "masked_velocity_error: prediction must be (batch, frames, channels), got "
            f"{tuple(prediction.shape)}."
        )
    values = {"prediction": prediction, "noise": noise, "data": data}
    for name, tensor in values.items():
        if tensor.shape != prediction.shape or not tensor.is_floating_point():
            raise DataError(
                f"masked_velocity_error: {name} must be floating {tuple(prediction.shape)} as the "
                f"prediction is, got {tensor.dtype} {tuple(tensor.shape)}."
            )
    if mask.dtype != torch.bool or mask.shape != prediction.shape[:2]:
        raise DataError(
            f"masked_velocity_error: mask must be bool {tuple(prediction.shape[:2])}, one for each "
            f"frame, got {mask.dtype} {tuple(mask.shape)}."
        )
    check_operands("masked_velocity_error", values, {"mask": mask})
