"""Moving averages of the weights, kept update by update.

After update t (counted from 0): shadow += (1 - d_t) (weight - shadow). The exponential average
(Polyak) has d_t = decay, or min(decay, (1 + t) / (10 + t)) with warm-up, which keeps the random
start out of it; the power-function average is in ``power_profiles``.
"""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from voicehub.errors import CheckpointMismatchError
from voicehub.optim.power_profiles import power_decay, sigma_rel_of

BufferPolicy = Literal["copy", "average"]


def decay_at(update: int, decay: float, *, warmup: bool) -> float:
    """The decay of the zero-based ``update``."""
    return min(decay, (1 + update) / (10 + update)) if warmup else decay


def share_of_start(updates: int, decay: float, *, warmup: bool) -> float:
    """What is left of the weights before the first update: the product of all decays.

    (1 + t) / (10 + t), over t < n, has the product n! 9! / (n + 9)!.
    """
    warming = 0
    if warmup:
        warming = min(updates, max(0, math.ceil((10.0 * decay - 1.0) / (1.0 - decay))))
    logarithm = math.lgamma(warming + 1) + math.lgamma(10) - math.lgamma(warming + 10)
    if updates == warming:
        return math.exp(logarithm)
    return math.exp(logarithm) * decay ** (updates - warming)


class WeightAverage(ABC):
    """Shadows of named tensors; a subclass says with which decay each update is taken in.

    Shadows have the dtype of their tensor, but float32 for half precision: 1 - decay is smaller
    than a half-precision number resolves.

    Args:
        module: the root that holds them; its persistent floating buffers are averaged, too, with
            the policy ``average``. With ``copy`` the average is used with the buffers of the
            model as they are (batch statistics of the raw weights).
        parameters: what is averaged, by name; read by ``update``, written by ``applied``.
        buffer_policy: ``copy`` or ``average``.
        offload: keep the shadows in main memory: an update then copies the weights there.
    """

    def __init__(
        self,
        module: nn.Module,
        parameters: Mapping[str, Tensor],
        *,
        buffer_policy: BufferPolicy = "copy",
        offload: bool = False,
    ) -> None:
        buffers = _floating_buffers(module) if buffer_policy == "average" else {}
        self.buffer_policy = buffer_policy
        self.offload = offload
        self.updates = 0
        self.names = (*parameters, *buffers)
        self._parameters = list(parameters.values())
        self._buffers = list(buffers.values())
        self.reset()

    @abstractmethod
    def decay_of(self, update: int) -> float:
        """The decay of the zero-based ``update``."""

    @abstractmethod
    def start_share(self) -> float:
        """What is left in the average of the weights before the first update."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """The settings, as JSON."""

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
        self._shadows = [self._home(_wide(tensor)).clone() for tensor in self._live]

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights of one more update."""
        weight = 1.0 - self.decay_of(self.updates)
        self.updates += 1
        if not self._shadows:
            return
        live = [self._home(_wide(tensor)) for tensor in self._live]
        torch._foreach_lerp_(self._shadows, live, weight)

    def _home(self, tensor: Tensor) -> Tensor:
        """Where shadows are kept."""
        return tensor.cpu() if self.offload else tensor

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


class ExponentialMovingAverage(WeightAverage):
    """The average with a fixed decay.

    Args:
        module, parameters, buffer_policy: see ``WeightAverage``.
        decay: in [0, 1).
        warmup: see the module's documentation.
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
        self.decay = decay
        self.warmup = warmup
        super().__init__(module, parameters, buffer_policy=buffer_policy)

    def decay_of(self, update: int) -> float:
        return decay_at(update, self.decay, warmup=self.warmup)

    def start_share(self) -> float:
        return share_of_start(self.updates, self.decay, warmup=self.warmup)

    def describe(self) -> dict[str, Any]:
        return {"decay": self.decay, "warmup": self.warmup, "buffers": self.buffer_policy}


class PowerFunctionAverage(WeightAverage):
    """The average whose width is a share of the run; it holds nothing of the start.

    Args:
        module, parameters, buffer_policy, offload: see ``WeightAverage``.
        gamma: exponent of its profile, at least 0.
    """

    def __init__(
        self,
        module: nn.Module,
        parameters: Mapping[str, Tensor],
        *,
        gamma: float,
        buffer_policy: BufferPolicy = "copy",
        offload: bool = False,
    ) -> None:
        self.gamma = gamma
        super().__init__(module, parameters, buffer_policy=buffer_policy, offload=offload)

    def decay_of(self, update: int) -> float:
        return power_decay(update, self.gamma)

    def start_share(self) -> float:
        return 0.0 if self.updates else 1.0

    def describe(self) -> dict[str, Any]:
        return {
            "sigma_rel": sigma_rel_of(self.gamma),
            "gamma": self.gamma,
            "buffers": self.buffer_policy,
        }


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
