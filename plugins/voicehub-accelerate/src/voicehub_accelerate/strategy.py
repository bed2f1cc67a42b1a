"""The strategy: an ``Accelerator`` for devices, precision and messages between processes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType, broadcast, gather_object, send_to_device
from torch import Tensor, nn

from voicehub.errors import ConfigurationError, VoiceHubError
from voicehub.strategies.single import SingleProcessStrategy

if TYPE_CHECKING:
    from voicehub.trainer.arguments import TrainingArguments

ResultT = TypeVar("ResultT")

#: What Accelerate calls data parallelism and nothing else, on the devices that training runs on.
_DATA_PARALLEL = frozenset(
    {DistributedType.NO, DistributedType.MULTI_CPU, DistributedType.MULTI_GPU}
)


class OtherRankError(VoiceHubError):
    """Another process failed in what it did for all of them."""

    is_of_another_rank = True


class AccelerateStrategy(SingleProcessStrategy):
    """Data parallelism over Accelerate.

    ``Accelerator.prepare`` is not used: it wraps a module whose ``forward`` is the only entrance,
    and a recipe calls the parts of a model as it likes, in several phases. The gradients of a
    phase are summed at its end instead.
    """

    name = "accelerate"

    def __init__(self, args: TrainingArguments) -> None:
        super().__init__(args)
        _refuse_unread(args)
        self.accelerator = _accelerator(args)
        self.device = self.accelerator.device.type
        self.rank = self.accelerator.process_index
        self.world_size = self.accelerator.num_processes
        self.local_rank = self.accelerator.local_process_index
        self._phase: list[nn.Parameter] = []
        self._buffers: list[tuple[nn.Module, str]] = []
        self._versions: list[tuple[int, int]] = []

    # Set-up.

    def prepare_device(self, model: nn.Module, *, device: str) -> nn.Module:
        """Move the module to the device of this process."""
        return model.to(self.accelerator.device)

    def prepare_model(self, model: nn.Module, *, device: str) -> nn.Module:
        """Start from the weights and buffers of rank 0, whatever was built here."""
        self._share([*model.parameters(), *model.buffers()])
        self._buffers = [
            (part, name)
            for part in model.modules()
            for name, buffer in part.named_buffers(recurse=False)
            if name not in part._non_persistent_buffers_set
        ]
        self._versions = self._look_at_buffers()
        return model

    def prepare_input(self, value: Any, *, device: str) -> Any:
        """Move nested tensors; on the CPU the batch is where it belongs already."""
        if self.device == "cpu":
            return value
        return send_to_device(value, self.accelerator.device, non_blocking=True)

    # One phase.

    def begin_phase(self, parameters: Sequence[nn.Parameter]) -> None:
        """The gradients of these are summed at the end of the phase."""
        self._phase = list(parameters)

    def end_phase(self) -> None:
        """Gradients hold the sums over ranks afterwards; None where no rank has one."""
        parameters, self._phase = self._phase, []
        if self.world_size == 1:
            return
        for group in _by_kind(parameters):
            _sum_gradients(group, self.accelerator)

    def autocast_context(self) -> AbstractContextManager[Any]:
        """Accelerate's, for the precision that was asked for."""
        context: AbstractContextManager[Any] = self.accelerator.autocast()
        return context

    def create_grad_scaler(self) -> Any:
        """Accelerate's, which it has for fp16."""
        return self.accelerator.scaler

    def backward(self, loss: Tensor, *, scaler: Any) -> None:
        """Accelerate's, which knows its scaler."""
        self.accelerator.backward(loss)

    # Agreement.

    def exchange(self, value: Any, *, what: str = "a decision") -> list[Any]:
        """Values of all ranks, in their order."""
        return self.gather_objects(value, what=what)

    def gather_objects(self, value: Any, *, what: str = "the results") -> list[Any]:
        """Objects of all ranks, in their order."""
        found: list[Any] = gather_object([value])
        return found

    def reduce_sum(self, value: Tensor | float) -> Tensor | float:
        """Sum in the order of ranks, so that all of them get the same bits."""
        return float(sum(self.exchange(float(value))))

    def any_rank(self, flag: bool) -> bool:
        """Whether any rank says so."""
        return any(self.exchange(bool(flag)))

    def barrier(self) -> None:
        """Wait for all processes."""
        self.accelerator.wait_for_everyone()

    def on_primary(self, work: Callable[[], ResultT], *, what: str = "work of rank 0") -> ResultT:
        """Rank 0 works, and all get its result.

        Raises:
            whatever it raised, on rank 0; OtherRankError on the others.
        """
        result: ResultT | None = None
        failure: Exception | None = None
        if self.is_primary:
            try:
                result = work()
            except Exception as error:
                failure = error
        found, told = self.exchange([result, _told(failure)], what=what)[0]
        _raise(failure, told, what)
        return found  # type: ignore[no-any-return]

    @contextlib.contextmanager
    def primary_first(self, what: str = "work of rank 0") -> Iterator[None]:
        """Rank 0 first, then the others.

        Raises:
            OtherRankError: it failed on rank 0; the others do not begin.
        """
        if self.is_primary:
            failure: Exception | None = None
            try:
                yield
            except Exception as error:
                failure = error
            self.exchange(_told(failure), what=what)
            _raise(failure, None, what)
            return
        _raise(None, self.exchange(None, what=what)[0], what)
        yield

    # What forwards change beside the weights.

    def changed_state(self) -> Any:
        """Numbers of the buffers that forward passes have changed since ``share_state``."""
        found = zip(self._buffers, self._versions, self._look_at_buffers(), strict=True)
        return [
            number
            for number, ((part, name), before, now) in enumerate(found)
            # The kernels of batch norm write running statistics without counting it.
            if before != now or (part.training and name.startswith("running_"))
        ]

    def share_state(self, changed: Sequence[Any]) -> None:
        """Take over what changed on any rank from rank 0."""
        numbers = sorted({number for found in changed for number in found})
        self._share([self._buffer(number) for number in numbers])
        self._versions = self._look_at_buffers()

    def _buffer(self, number: int) -> Tensor:
        part, name = self._buffers[number]
        return part.get_buffer(name)

    def _look_at_buffers(self) -> list[tuple[int, int]]:
        buffers = [self._buffer(number) for number in range(len(self._buffers))]
        return [(id(buffer), buffer._version) for buffer in buffers]

    def _share(self, tensors: Sequence[Tensor]) -> None:
        """Give all ranks the tensors of rank 0, in place."""
        if self.world_size == 1:
            return
        with torch.no_grad():
            for tensor in tensors:
                tensor.copy_(broadcast(tensor.detach().clone().contiguous()))


def _accelerator(args: TrainingArguments) -> Accelerator:
    precision = "fp16" if args.fp16 else "bf16" if args.bf16 else "no"
    try:
        accelerator = Accelerator(cpu=args.device == "cpu", mixed_precision=precision)
    except ValueError as error:  # it was set up in this process before, in another way
        raise ConfigurationError(f"Accelerate cannot be set up: {error}") from error
    kind = accelerator.distributed_type
    if kind not in _DATA_PARALLEL:
        raise ConfigurationError(
            f"The strategy 'accelerate' is data parallel on cuda or cpu, and Accelerate is set up "
            f"for {kind.value}. Use training.strategy=fsdp, or another Accelerate configuration."
        )
    return accelerator


def _refuse_unread(args: TrainingArguments) -> None:
    default = type(args)().ddp_timeout
    if args.ddp_timeout != default:
        raise ConfigurationError(
            "ddp_timeout is not read by the strategy 'accelerate': it waits as long as "
            "Accelerate's process group does. Leave it out, or use strategy='ddp'."
        )


def _by_kind(parameters: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Parameters of one dtype and device each, in their order."""
    groups: dict[tuple[torch.dtype, torch.device], list[nn.Parameter]] = {}
    for parameter in parameters:
        groups.setdefault((parameter.dtype, parameter.device), []).append(parameter)
    return list(groups.values())


def _sum_gradients(parameters: Sequence[nn.Parameter], accelerator: Accelerator) -> None:
    """One message: all gradients, zeros where there are none, then who has one."""
    first = parameters[0]
    parts = [
        torch.zeros_like(p).reshape(-1) if p.grad is None else p.grad.reshape(-1)
        for p in parameters
    ]
    present = [0.0 if p.grad is None else 1.0 for p in parameters]
    parts.append(torch.tensor(present, dtype=first.dtype, device=first.device))
    message: Any = accelerator.reduce(torch.cat(parts).detach(), reduction="sum")
    *sums, counts = torch.split(message, [*(p.numel() for p in parameters), len(parameters)])
    for parameter, total, count in zip(parameters, sums, counts.tolist(), strict=True):
        parameter.grad = total.view_as(parameter) if count else None


def _told(failure: Exception | None) -> str | None:
    return None if failure is None else f"{type(failure).__name__}: {failure}"


def _raise(failure: Exception | None, told: str | None, what: str) -> None:
    if failure is not None:
        raise failure
    if told is not None:
        raise OtherRankError(f"rank 0 failed in {what}: {told}")
