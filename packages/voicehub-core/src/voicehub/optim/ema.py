"""Exponential moving average of the weights (Polyak averaging), with a warm-up of the decay.

After update t (counted from 0): shadow += (1 - d_t) (weight - shadow), with d_t the decay, or
min(decay, (1 + t) / (10 + t)) with warm-up, which keeps the random start out of the average.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from voicehub.errors import CheckpointMismatchError

BufferPolicy = Literal["copy", "average"]


def decay_at(update: int, decay: float, *, warmup: bool) -> float:
    """The decay of the zero-based ``update``."""
    return min(decay, (1 + update) / (10 + update)) if warmup else decay


class ExponentialMovingAverage:
    """Shadows of named tensors.

    Shadows have the dtype of their tensor, but float32 for half precision: 1 - decay is smaller
    than a half-precision number resolves.

    Args:
        module: the root that holds them; its persistent floating buffers are averaged, too, with
            the policy ``average``. With ``copy`` the average is used with the buffers of the
            model as they are (batch statistics of the raw weights).
        parameters: what is averaged, by name; read by ``update``, written by ``applied``.
        decay: in [0, 1).
        warmup: see the module's documentation.
        buffer_policy: ``copy`` or ``average``.
    """

    def __init__(
        self,
        module: nn.Module,
        parameters: Mapping[str, Tensor],
        *,
        decay: float,
        warmup: bool = True,
        buffer_policy: BufferPolicy = "copy",
    ) -> None:
        buffers = _floating_buffers(module) if buffer_policy == "average" else {}
        self.decay = decay
        self.warmup = warmup
        self.buffer_policy = buffer_policy
        self.updates = 0
        self.names = (*parameters, *buffers)
        self._parameters = list(parameters.values())
        self._buffers = list(buffers.values())
        self.reset()

    @property
    def _live(self) -> list[Tensor]:
        """The model's tensors. Buffers are looked up: modules may put new ones in their place."""
        held: list[Tensor] = list(self._parameters)
        for owner, name in self._buffers:
            buffer = owner._buffers[name]
            assert buffer is not None
            held.append(buffer)
        return held

    @torch.no_grad()
    def reset(self) -> None:
        """Start over from the weights as they are now."""
        self.updates = 0
        self._shadows = [_wide(tensor).clone() for tensor in self._live]

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights of one more update."""
        weight = 1.0 - decay_at(self.updates, self.decay, warmup=self.warmup)
        self.updates += 1
        if not self._shadows:
            return
        torch._foreach_lerp_(self._shadows, [_wide(tensor) for tensor in self._live], weight)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Hold the average in the model; the raw weights come back, bit for bit, also on errors."""
        with torch.no_grad():
            live = self._live
            raw = [tensor.clone() for tensor in live]
            _copy(live, self._shadows)
        try:
            yield
        finally:
            with torch.no_grad():
                _copy(live, raw)

    def shadows(self) -> dict[str, Tensor]:
        """The averages by name; the tensors are live."""
        return dict(zip(self.names, self._shadows, strict=True))

    def describe(self) -> dict[str, Any]:
        """The settings, as JSON."""
        return {"decay": self.decay, "warmup": self.warmup, "buffers": self.buffer_policy}

    def state_dict(self) -> dict[str, Any]:
        """Updates taken in and the averages by name."""
        return {"updates": self.updates, "shadows": self.shadows()}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore ``state_dict``, all or nothing.

        Raises:
            CheckpointMismatchError: names, shapes or dtypes differ; nothing was changed.
        """
        saved, current = state["shadows"], self.shadows()
        wrong = sorted(saved.keys() ^ current.keys())
        wrong += [n for n in current if n in saved and not _alike(current[n], saved[n])]
        if wrong:
            raise CheckpointMismatchError(
                f"The averaged weights do not fit this model: {', '.join(wrong[:8])} are missing, "
                "unknown or of another shape or dtype. Nothing was loaded."
            )
        _copy(self._shadows, [saved[name] for name in self.names])
        self.updates = int(state["updates"])


def _floating_buffers(module: nn.Module) -> dict[str, tuple[nn.Module, str]]:
    """Persistent floating buffers: the module that holds each, and its name there."""
    found: dict[str, tuple[nn.Module, str]] = {}
    for path, part in module.named_modules():
        for name, buffer in part._buffers.items():
            if buffer is None or name in part._non_persistent_buffers_set:
                continue
            if buffer.is_floating_point():
                found[f"{path}.{name}" if path else name] = (part, name)
    return found


def _wide(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _copy(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source)


def _alike(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype
