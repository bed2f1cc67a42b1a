"""The ``ddp`` strategy: every process holds the whole model; gradients are summed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from voicehub.errors import ConfigurationError
from voicehub.strategies.distributed import DistributedStrategy
from voicehub.strategies.gradient_buckets import GradientBuckets

if TYPE_CHECKING:
    from voicehub.trainer.arguments import TrainingArguments


class DataParallelStrategy(DistributedStrategy):
    """Synchronous data parallelism; see ``gradient_buckets`` for how gradients travel.

    Weights are those of rank 0 from the start on. Batch statistics (BatchNorm in training mode)
    are those of each rank's own micro-batch, exactly as when one process accumulates the same
    micro-batches; buffers that a forward changed are those of rank 0 after every update.
    """

    name = "ddp"

    def __init__(self, args: TrainingArguments) -> None:
        super().__init__(args)
        self._buckets = GradientBuckets(self.world)
        self._buffers: list[tuple[nn.Module, str]] = []
        self._versions: list[tuple[int, int]] = []

    def prepare_model(self, model: nn.Module, *, device: str) -> nn.Module:
        """Start from the weights and buffers of rank 0, whatever was built here."""
        self.share_initial_state(model)
        return model

    def share_initial_state(self, model: nn.Module) -> None:
        """Give all ranks the weights and buffers of rank 0.

        Raises:
            ConfigurationError: a module's forward is a joint act of all ranks.
        """
        _refuse_joint_statistics(model)
        self.broadcast_from_primary([*model.parameters(), *model.buffers()])
        self._buffers = [
            (part, name)
            for part in model.modules()
            for name, buffer in part._buffers.items()
            if buffer is not None and name not in part._non_persistent_buffers_set
        ]
        self._versions = self._look_at_buffers()

    def begin_phase(self, parameters: Sequence[nn.Parameter]) -> None:
        """The gradients of these are summed at the end of the phase."""
        self._buckets.begin(parameters)

    @contextlib.contextmanager
    def no_sync(self, model: nn.Module, *, enabled: bool) -> Iterator[None]:
        """The last micro-batch of a window sends gradients while its backward goes on."""
        if not enabled:
            self._buckets.arm()
        yield

    def end_phase(self) -> None:
        """Gradients hold the sums over ranks afterwards, on every rank the same bits."""
        self._buckets.finish()

    def changed_state(self) -> Any:
        """Numbers of the buffers that forward passes have changed since ``share_state``."""
        pairs = zip(self._buffers, self._versions, self._look_at_buffers(), strict=True)
        return [
            number
            for number, ((part, name), before, now) in enumerate(pairs)
            # The kernels of batch norm write running statistics without counting it.
            if before != now or (part.training and name.startswith("running_"))
        ]

    def share_state(self, changed: Sequence[Any]) -> None:
        """Take over what changed on any rank from rank 0."""
        numbers = sorted({number for found in changed for number in found})
        if not numbers:
            return
        tensors: list[Tensor] = []
        for number in numbers:
            part, name = self._buffers[number]
            buffer = part._buffers[name]
            assert buffer is not None
            tensors.append(buffer)
        self.broadcast_from_primary(tensors)
        self._versions = self._look_at_buffers()

    def _look_at_buffers(self) -> list[tuple[int, int]]:
        found = (part._buffers[name] for part, name in self._buffers)
        return [(id(buffer), 0 if buffer is None else buffer._version) for buffer in found]


def _refuse_joint_statistics(model: nn.Module) -> None:
    """SyncBatchNorm waits in its forward for all ranks, and one may have no micro-batch then.

    Nor would its updates be those of one process that accumulates the same micro-batches.
    """
    for name, part in model.named_modules():
        if isinstance(part, nn.SyncBatchNorm):
            raise ConfigurationError(
                f"The module '{name}' is a SyncBatchNorm. Statistics of a batch are those of each "
                "process's own micro-batch here: build it as BatchNorm, use larger micro-batches, "
                "or a norm that does not look at the batch (GroupNorm, LayerNorm)."
            )
