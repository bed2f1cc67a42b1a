"""The compiled path on the CPU: error in one call, gradient in another."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ctypes import POINTER, Structure, c_double, c_int64, c_void_p
from pathlib import Path

import torch
from torch import Tensor

from voicehub.kernels import CLibrary


class _Tensor(Structure):
    """``tensor_t`` of the C source."""

    _fields_ = [
        ("values", c_void_p),
        ("kind", c_int64),
        ("item", c_int64),
        ("frame", c_int64),
    ]


_INPUTS = (POINTER(_Tensor), c_void_p, c_double, *[c_int64] * 4)
LIBRARY = CLibrary(
    "flow_masked_velocity",
    Path(__file__).with_name("masked_velocity.c"),
    {
        f"masked_velocity_{name}_{real}": (*_INPUTS, *[c_void_p] * results)
        for name, results in (("forward", 1), ("backward", 2))
        for real in ("float", "double")
    },
)
_KINDS = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2}
#: Below so many values a second thread costs more than it gives.
_WORTH_A_THREAD = 1 << 18


def forward(
    prediction: Tensor, noise: Tensor, data: Tensor, mask: Tensor, min_sigma: float
) -> Tensor:
    """Sum of squares of each item, float32 or, where an input is float64, float64."""
    tensors = tuple(_readable(values) for values in (prediction, noise, data))
    errors = torch.empty(prediction.shape[0], dtype=torch.float64)
    real = _run("forward", tensors, mask, min_sigma, errors.data_ptr())
    return errors if real == "double" else errors.float()


def backward(
    upstream: Tensor,
    prediction: Tensor,
    noise: Tensor,
    data: Tensor,
    mask: Tensor,
    min_sigma: float,
) -> Tensor:
    """Gradient by the prediction, in its dtype; contiguous."""
    tensors = tuple(_readable(values) for values in (prediction, noise, data))
    gradient = torch.empty(prediction.shape, dtype=tensors[0].dtype)
    slopes = upstream.double() * 2.0
    _run("backward", tensors, mask, min_sigma, slopes.data_ptr(), gradient.data_ptr())
    return gradient.to(prediction.dtype)


def _readable(values: Tensor) -> Tensor:
    """A dtype that C reads, the channels of a frame next to each other."""
    known = values if values.dtype in _KINDS else values.float()
    return known if known.stride(2) == 1 else known.contiguous()


def _run(
    name: str, tensors: tuple[Tensor, ...], mask: Tensor, min_sigma: float, *results: int
) -> str:
    """Call the function on ranges of items, a thread each; returns the C type of differences."""
    batch, frames, channels = tensors[0].shape
    real = "double" if any(values.dtype == torch.float64 for values in tensors) else "float"
    function = LIBRARY.function(f"masked_velocity_{name}_{real}")
    described = (_Tensor * 3)(
        *(
            _Tensor(values.data_ptr(), _KINDS[values.dtype], *values.stride()[:2])
            for values in tensors
        )
    )
    flags = mask.contiguous()

    def run(first: int, last: int) -> None:
        function(
            described,
            flags.data_ptr(),
            1.0 - min_sigma,
            first,
            last,
            frames,
            channels,
            *results,
        )

    _in_threads(run, batch, tensors[0].numel())
    return real


def _in_threads(run: Callable[[int, int], None], batch: int, work: int) -> None:
    threads = max(1, min(torch.get_num_threads(), batch, work // _WORTH_A_THREAD))
    if threads == 1:
        run(0, batch)
        return
    bounds = [batch * part // threads for part in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(run, bounds[:-1], bounds[1:]))
