"""What kernels make for themselves and give up before they return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

_FORWARD = torch.ops.aten.convolution.default
_BACKWARD = torch.ops.aten.convolution_backward.default


def passing_bytes(func: Any, args: Sequence[Any], result: Any, *, on_card: bool) -> int:
    """Return the most bytes that an op holds beyond its results.

    Convolutions copy what does not lie in one piece, on every device. oneDNN, which computes them
    on a CPU, lays out anew what they read and write as well.

    Args:
        func: the op.
        args: its arguments.
        result: what it has returned.
        on_card: whether the device is a card.
    """
    if func is _FORWARD:
        copies = _copies(args[:2])
        return copies if on_card else copies + _laid_out_forward(args, result)
    if func is _BACKWARD:
        copies = _copies(args[:3])
        return copies if on_card else copies + _laid_out_backward(args)
    return 0


def _laid_out_forward(args: Sequence[Any], output: Tensor) -> int:
    """First input and weight beside the output, then both layouts of the output."""
    return max(_laid_out(args[0]) + _bytes(args[1]), _bytes(output))


def _laid_out_backward(args: Sequence[Any]) -> int:
    """Gradient and input for that of the weight; for a strided one the input's gradient twice."""
    gradient, taken, stride = args[0], args[1], args[4]
    both = _bytes(gradient) + _laid_out(taken)
    return max(both, 2 * _laid_out(taken)) if max(stride) > 1 else both


def _laid_out(tensor: Tensor) -> int:
    """A single channel lies in blocks already."""
    return _bytes(tensor) if tensor.shape[1] > 1 else 0


def _copies(tensors: Sequence[Tensor]) -> int:
    return sum(_bytes(tensor) for tensor in tensors if not _in_one_piece(tensor))


def _in_one_piece(tensor: Tensor) -> bool:
    if tensor.is_contiguous():
        return True
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return tensor.ndim in formats and tensor.is_contiguous(memory_format=formats[tensor.ndim])


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
