"""What every operator of a loss refuses, since torch would take it and return something wrong."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor
from torch.autograd import forward_ad

from voicehub.errors import DataError, UnsupportedTrainingError


def check_operands(loss: str, values: Mapping[str, Tensor], targets: Mapping[str, Tensor]) -> None:
    """Refuse tensors on several devices, values that are not floating, and forward derivatives.

    An operator with tensors on two devices runs on one of them, or not at all, and returns memory
    that nobody has written; integers and complex numbers are cast; the tangents of forward-mode
    differentiation are dropped, as if the derivative were 0.

    Args:
        loss: name of the function, for messages.
        values: by name, what has a gradient; the first one's device is that of all.
        targets: lengths, labels, masks, by name.

    Raises:
        DataError: devices or dtypes do not fit.
        UnsupportedTrainingError: forward-mode differentiation.
    """
    first = next(iter(values))
    device = values[first].device
    for name, tensor in (*values.items(), *targets.items()):
        if tensor.device != device:
            raise DataError(f"{loss}: {name} is on {tensor.device}, the {first} on {device}.")
    for name, tensor in values.items():
        if not tensor.is_floating_point():
            raise DataError(
                f"{loss}: {name} must be floating, got {tensor.dtype} {tuple(tensor.shape)}."
            )
        if _has_tangent(tensor):
            raise UnsupportedTrainingError(
                f"{loss} has no forward-mode derivative ({name} has a tangent): use backward() or "
                "torch.autograd.grad."
            )


def _has_tangent(tensor: Tensor) -> bool:
    try:
        dual = forward_ad.unpack_dual(tensor)  # type: ignore[no-untyped-call]
    except RuntimeError:  # under vmap and a dual level torch cannot look
        return True
    return dual.tangent is not None
