"""The ``fsdp`` strategy: parameters, gradients and optimizer state are shared out to the ranks.

FSDP2 (``torch.distributed.fsdp.fully_shard``) over a root that executes a phase: whatever part of
the model a recipe calls, and in whatever way, the root's own parameters are whole by then. Large
blocks (children of a ``ModuleList``, which are called as modules) are gathered one by one, when
they are called, and given up after it; a block that a recipe reaches into without calling it
belongs to the root, which ``fsdp_min_block`` decides.

Gradients are reduced once a window: its earlier micro-batches keep theirs whole. Since a forward
is a joint act here, a rank without a micro-batch in a window runs one whose loss counts nothing.
Parameters that cannot be shared out (scalars, another dtype than most) stay whole on every rank,
and their gradients are summed as under ``ddp``.
"""

from __future__ import annotations

import contextlib
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, Shard

from voicehub.errors import ConfigurationError
from voicehub.optim.gradients import scale_
from voicehub.strategies.ddp import DataParallelStrategy

if TYPE_CHECKING:
    from voicehub.adapters.base import TrainingAdapter
    from voicehub.adapters.context import TrainingContext
    from voicehub.adapters.outputs import SpeechTrainingOutput
    from voicehub.optim.bundle import OptimizerBundle, SchedulerBundle
    from voicehub.trainer.arguments import TrainingArguments


class _PhaseRoot(nn.Module):
    """Runs a phase inside a forward, so that its hooks gather and release the parameters."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.output: SpeechTrainingOutput | None = None

    def forward(self, adapter: TrainingAdapter, context: TrainingContext) -> Tensor | None:
        """The loss alone goes through the hooks, which look for tensors in what is returned."""
        if context.is_training:
            self.output = adapter.execute_training_phase(context)
        else:
            self.output = adapter.execute_prediction_phase(context)
        return self.output.loss


class FullyShardedStrategy(DataParallelStrategy):
    """Fully sharded data parallelism; see the module's documentation."""

    name = "fsdp"
    needs_equal_work = True
    holds_parts = True

    def __init__(self, args: TrainingArguments) -> None:
        if args.oom_retry_halves:
            raise ConfigurationError(
                "oom_retry_halves=True is for the strategies 'torch' and 'ddp': under 'fsdp' a "
                "process that runs out of memory cannot finish what the others wait for. Leave it "
                "out and lower per_device_train_batch_size or its duration limit."
            )
        super().__init__(args)
        self._smallest_block = args.fsdp_min_block
        self._root: Any = None
        self._mesh: Any = None
        self._whole: set[nn.Parameter] = set()
        self._phase: list[nn.Parameter] = []

    def prepare_training_adapter(self, adapter: TrainingAdapter, *, device: str) -> TrainingAdapter:
        """Share out the parameters; routes and phases hold the new ones afterwards."""
        module = adapter.module
        self.share_initial_state(module)
        self._mesh = init_device_mesh(device, (self.world_size,))
        names = {parameter: name for name, parameter in module.named_parameters()}
        self._whole = _not_shardable(module)
        options: dict[str, Any] = {"mesh": self._mesh, "ignored_params": self._whole}
        for block in sharded_blocks(module, self._smallest_block, self._whole):
            fully_shard(block, **options)
        self._root = _PhaseRoot(module)
        # Tied to the root by its documentation: kept whole from the forward to the backward.
        fully_shard(self._root, **options)
        now = dict(module.named_parameters())
        adapter.replace_routes(
            {
                route: [(name, now[names[parameter]]) for name, parameter in named]
                for route, named in adapter.routes.items()
            }
        )
        return adapter

    def prepare_model(self, model: nn.Module, *, device: str) -> nn.Module:
        """The weights were made equal before they were shared out."""
        return model

    def prepare_optimization(
        self, model: nn.Module, optimizer: OptimizerBundle, scheduler: SchedulerBundle | None
    ) -> tuple[OptimizerBundle, SchedulerBundle | None]:
        """Groups that hold shared out and whole parameters are stepped one tensor at a time."""
        for one in optimizer.optimizers.values():
            for group in one.param_groups:
                if len({isinstance(parameter, DTensor) for parameter in group["params"]}) > 1:
                    group["foreach"], group["fused"] = False, None
        return optimizer, scheduler

    # One phase.

    def begin_phase(self, parameters: Sequence[nn.Parameter]) -> None:
        """Whole parameters are reduced in buckets, the others by FSDP."""
        self._phase = [p for p in parameters if isinstance(p, DTensor)]
        super().begin_phase([p for p in parameters if not isinstance(p, DTensor)])

    @contextlib.contextmanager
    def no_sync(self, model: nn.Module, *, enabled: bool) -> Iterator[None]:
        """Earlier micro-batches of a window keep their gradients whole."""
        self._root.set_requires_gradient_sync(not enabled)
        with super().no_sync(model, enabled=enabled):
            yield

    def end_phase(self) -> None:
        """FSDP has averaged over the ranks: make that a sum."""
        super().end_phase()
        scale_(_local(p.grad for p in self._phase if p.grad is not None), float(self.world_size))

    def execute_training_phase(
        self, model: nn.Module, adapter: TrainingAdapter, context: TrainingContext
    ) -> SpeechTrainingOutput:
        """Through the root."""
        with self.autocast_context(), self.world.explained("the weights of a phase"):
            return self._run(adapter, context)

    def execute_prediction_phase(
        self, model: nn.Module, adapter: TrainingAdapter, context: TrainingContext
    ) -> SpeechTrainingOutput:
        """Through the root, whose parameters are given up again."""
        doing = self.world.explained("the weights of an evaluation")
        with torch.no_grad(), self.autocast_context(), doing:
            output = self._run(adapter, context)
        self._root.reshard()
        return output

    def _run(self, adapter: TrainingAdapter, context: TrainingContext) -> SpeechTrainingOutput:
        loss = self._root(adapter, context)
        output: SpeechTrainingOutput = self._root.output
        self._root.output, output.loss = None, loss
        return output

    def backward(self, loss: Tensor, *, scaler: Any) -> None:
        """A joint act as well."""
        with self.world.explained("the gradients of a phase"):
            super().backward(loss, scaler=scaler)

    # The end of a window: norms and scaling on this rank's parts.

    def normalize_gradients(self, grads: Sequence[Tensor], divisor: float) -> None:
        """Divide this rank's parts in place."""
        scale_(_local(grads), 1.0 / divisor)

    def gradient_norm(self, grads: Sequence[Tensor]) -> Tensor:
        """Over all parts; what every rank holds whole counts once."""
        parts = [g.to_local() for g in grads if isinstance(g, DTensor)]
        whole = [g for g in grads if not isinstance(g, DTensor)]
        own = _square_sum(parts) + (_square_sum(whole) if self.is_primary else 0.0)
        rows = self.world.exchange(own, what="the norm of gradients")
        return torch.tensor(sum(rows), dtype=torch.float64).sqrt()

    def clip_grad_norm(self, grads: Sequence[Tensor], norm: float, max_norm: float) -> None:
        """Every rank scales its parts by the same factor."""
        super().clip_grad_norm(_local(grads), norm, max_norm)

    # Weights as a whole.

    def local_tensors(self, named: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """This rank's parts; they share memory with the parameters."""
        return {name: _part(tensor) for name, tensor in named.items()}

    def whole_tensor(self, tensor: Tensor, like: Tensor | None = None) -> Tensor:
        """Gather a tensor of which every rank holds a part; all ranks must call it."""
        if isinstance(like, DTensor) and not isinstance(tensor, DTensor):
            tensor = self._laid_out(tensor, like)
        if not isinstance(tensor, DTensor):
            return tensor.detach()
        with self.world.explained("a whole tensor"), torch.no_grad():
            return tensor.full_tensor().detach()

    def part_like(self, whole: Tensor, like: Tensor) -> Tensor:
        """This rank's part of a whole tensor, laid out as ``like`` is."""
        if not isinstance(like, DTensor) or whole.shape != like.shape:
            return whole
        parts = torch.chunk(whole, self.world_size, dim=0)
        own = parts[self.rank] if self.rank < len(parts) else whole[:0]
        return self._laid_out(own.to(like.device).contiguous(), like)

    def _laid_out(self, part: Tensor, like: Tensor) -> DTensor:
        return DTensor.from_local(
            part,
            self._mesh,
            [Shard(0)],
            run_check=False,
            shape=like.shape,
            stride=like.stride(),
        )

    @contextlib.contextmanager
    def whole_model(self, model: nn.Module, *, write_back: bool = False) -> Iterator[None]:
        """Hold plain, whole parameters in the modules: to be read, not to be run."""
        fresh: dict[nn.Parameter, nn.Parameter] = {}
        places: list[tuple[nn.Module, str, nn.Parameter]] = []
        for part in model.modules():
            for name, parameter in part._parameters.items():
                if isinstance(parameter, DTensor):
                    if parameter not in fresh:
                        plain = self.whole_tensor(parameter)
                        fresh[parameter] = nn.Parameter(plain, parameter.requires_grad)
                    places.append((part, name, parameter))
        hooks = {part: part._load_state_dict_post_hooks for part, _, _ in places}
        try:
            for part, name, parameter in places:
                part._parameters[name] = fresh[parameter]
                # FSDP's own look for what it has put there.
                part._load_state_dict_post_hooks = OrderedDict(
                    (key, hook) for key, hook in hooks[part].items() if not _is_of_fsdp(hook)
                )
            yield
            if write_back:
                for parameter, plain in fresh.items():
                    _part(parameter).copy_(_part(self.part_like(plain.detach(), parameter)))
        finally:
            for part, name, parameter in places:
                part._parameters[name] = parameter
                part._load_state_dict_post_hooks = hooks[part]

    @contextlib.contextmanager
    def open_model(self, model: nn.Module) -> Iterator[None]:
        """Gather everything, so that parts can be called outside of a phase, by all ranks alike."""
        sharded = [part for part in self._root.modules() if isinstance(part, FSDPModule)]
        with self.world.explained("the whole model"):
            for part in sharded:
                part.unshard()
        try:
            yield
        finally:
            for part in sharded:
                part.reshard()


def _not_shardable(module: nn.Module) -> set[nn.Parameter]:
    """Scalars, and parameters of another dtype than most."""
    parameters = list(module.parameters())
    if not parameters:
        raise ConfigurationError("The strategy 'fsdp' found no parameter to share out.")
    common = Counter(p.dtype for p in parameters).most_common(1)[0][0]
    return {p for p in parameters if p.ndim == 0 or p.dtype is not common}


def sharded_blocks(module: nn.Module, smallest: int, whole: set[nn.Parameter]) -> list[nn.Module]:
    """Children of module lists with at least ``smallest`` parameters, none inside of another.

    One that shares a parameter with the rest of the model stays with the root.
    """
    uses = Counter(p for part in module.modules() for p in part._parameters.values())
    found: list[nn.Module] = []
    inside: set[nn.Module] = set()
    for part in module.modules():
        if not isinstance(part, nn.ModuleList) or part in inside:
            continue
        for block in part:
            own = [p for p in block.parameters() if p not in whole]
            within = Counter(p for b in block.modules() for p in b._parameters.values())
            tied = any(uses[p] != within[p] for p in own)
            if sum(p.numel() for p in own) >= smallest and not tied and block not in inside:
                found.append(block)
                inside.update(block.modules())
    return found


def _is_of_fsdp(hook: Any) -> bool:
    return ".fsdp." in (getattr(hook, "__module__", None) or "")


def _part(tensor: Tensor) -> Tensor:
    if not isinstance(tensor, DTensor):
        return tensor
    with torch.no_grad():
        part: Tensor = tensor.to_local()
    return part


def _local(tensors: Iterable[Tensor]) -> list[Tensor]:
    return [t for t in map(_part, tensors) if t.numel()]


def _square_sum(tensors: Sequence[Tensor]) -> float:
    """In float64 beyond each tensor's own norm."""
    held = [t for t in tensors if t.numel()]
    if not held:
        return 0.0
    norms = torch.stack([n.double() for n in torch._foreach_norm(held)])
    return float(norms.square().sum())
