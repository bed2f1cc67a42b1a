"""The ``torch`` strategy: one process, one device."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from voicehub.errors import ConfigurationError
from voicehub.optim.gradients import scale_, total_norm
from voicehub.strategies.base import TrainingStrategy

if TYPE_CHECKING:
    from voicehub.adapters.base import TrainingAdapter
    from voicehub.adapters.context import TrainingContext
    from voicehub.adapters.outputs import SpeechTrainingOutput
    from voicehub.optim.bundle import OptimizerBundle
    from voicehub.trainer.arguments import TrainingArguments


class SingleProcessStrategy(TrainingStrategy):
    """Trains on the one device that ``TrainingArguments`` name; starts no other process."""

    name = "torch"

    def __init__(self, args: TrainingArguments) -> None:
        self.device = args.device
        self._precision = _precision(args, self.device)
        self._fp16 = args.fp16

    def prepare_device(self, model: nn.Module, *, device: str) -> nn.Module:
        """Move the module in place, so that parameter identities survive."""
        return model.to(device)

    def prepare_input(self, value: Any, *, device: str) -> Any:
        """Move nested tensors; on the CPU the batch is where it belongs already."""
        return value if device == "cpu" else move(value, device)

    def autocast_context(self) -> AbstractContextManager[Any]:
        """bf16 or fp16 autocast, or nothing."""
        if self._precision is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device, dtype=self._precision)

    def execute_training_phase(
        self, model: nn.Module, adapter: TrainingAdapter, context: TrainingContext
    ) -> SpeechTrainingOutput:
        """Skips the context manager in full precision: this runs on every micro-batch."""
        if self._precision is None:
            return adapter.execute_training_phase(context)
        return super().execute_training_phase(model, adapter, context)

    def create_grad_scaler(self) -> Any:
        """fp16 needs one; bf16 and fp32 do not."""
        return torch.amp.GradScaler(self.device) if self._fp16 else None

    def backward(self, loss: Tensor, *, scaler: Any) -> None:
        """Plain or scaled backward."""
        (loss if scaler is None else scaler.scale(loss)).backward()

    def gradient_norm(self, grads: Sequence[Tensor]) -> Tensor:
        """Norm on this device."""
        return total_norm(grads)

    def clip_grad_norm(self, grads: Sequence[Tensor], norm: float, max_norm: float) -> None:
        """``max_norm / (norm + 1e-6)``, as torch clips; gradients within the norm stay as is."""
        if norm > max_norm:
            scale_(grads, max_norm / (norm + 1e-6))

    def unscale(self, optimizer: OptimizerBundle, names: Iterable[str], *, scaler: Any) -> None:
        """Unscale each named optimizer's gradients in place."""
        if scaler is not None:
            for name in names:
                scaler.unscale_(optimizer[name])

    def optimizer_step(
        self, optimizer: OptimizerBundle, names: Iterable[str], *, scaler: Any
    ) -> None:
        """Step; the caller has checked that gradients are finite."""
        for name in names:
            if scaler is None:
                optimizer[name].step()
            else:
                scaler.step(optimizer[name])

    def update_scaler(self, scaler: Any, *, skipped: bool) -> None:
        """GradScaler halves its scale by itself after an overflow it saw in ``unscale_``."""
        if scaler is not None:
            scaler.update()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """This strategy has no state."""
        if state:
            raise ConfigurationError(f"The torch strategy has no state, got {sorted(state)}.")


def move(value: Any, device: str) -> Any:
    """Move the tensors in nested mappings, lists and tuples; anything else is returned as is."""
    if isinstance(value, Tensor):
        return value.to(device, non_blocking=True)
    if isinstance(value, Mapping):
        return {key: move(item, device) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(move(item, device) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(move(item, device) for item in value)
    return value


def _precision(args: TrainingArguments, device: str) -> torch.dtype | None:
    if args.fp16:
        if device != "cuda":
            raise ConfigurationError(
                f"fp16=True needs a CUDA device, this run is on '{device}'. Use bf16=True, which "
                "also works on the CPU, or full precision."
            )
        return torch.float16
    return torch.bfloat16 if args.bf16 else None
