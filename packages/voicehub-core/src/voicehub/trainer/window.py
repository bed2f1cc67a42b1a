"""One accumulation window: from micro-batches to moved weights.

A window holds its micro-batches and runs phase by phase: all micro-batches of one phase, then the
next phase. Phases with ``optimizer_step_after_phase`` step before the next phase's forward, which
keeps the order of a GAN exact for any accumulation.

Normalisation. A phase's loss is a mean over its ``num_items``. With micro-batches i, losses l_i
and items n_i, the window's gradient is sum(n_i * grad l_i) / sum(n_i), over all processes: the
mean over the items of the window, however it was split. A window of one micro-batch on one process
is its own gradient, untouched. A loss without ``num_items`` counts as one item.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from voicehub.adapters.base import TrainingAdapter
from voicehub.adapters.context import TrainingContext
from voicehub.adapters.routes import route_names
from voicehub.errors import RecipeError
from voicehub.optim.bundle import OptimizerBundle, SchedulerBundle
from voicehub.optim.gradients import GradientStash, gradients
from voicehub.specs.phase import TrainingPhaseSpec
from voicehub.strategies.base import TrainingStrategy
from voicehub.trainer.agreement import PhaseSums, share_halves, share_phase
from voicehub.trainer.buffers import BufferGuard
from voicehub.trainer.custom_loss import CustomLoss
from voicehub.trainer.fillers import Fillers
from voicehub.trainer.memory import (
    IndivisibleBatchError,
    StepOutOfMemoryError,
    describe_exhaustion,
    halved,
)
from voicehub.trainer.micro_batch import MicroBatch, Window

if TYPE_CHECKING:
    from voicehub.trainer.nonfinite import NonFiniteDumps
    from voicehub.trainer.random_record import RandomStates

__all__ = ["AccumulationWindow", "MicroBatch", "UpdateResult", "Window"]

logger = logging.getLogger(__name__)

Items = Tensor | float | int
Routes = tuple[str, ...]


@dataclass(slots=True)
class UpdateResult:
    """What one window did. ``loss`` is the sum over phases of their means over items."""

    loss: float = 0.0
    grad_norm: float = 0.0
    num_items: float | None = None
    components: dict[str, float] = field(default_factory=dict)
    stepped: Routes = ()
    skipped: str | None = None  # why a stage moved nothing, or None

    def take(self, part: UpdateResult) -> None:
        """Add what one stage did. Of a stage that was dropped nothing counts."""
        self.loss += part.loss
        self.grad_norm = part.grad_norm
        if part.num_items is not None:
            self.num_items = (self.num_items or 0.0) + part.num_items
        self.components.update(part.components)
        self.stepped += part.stepped


@dataclass(slots=True)
class _PhaseSum:
    """Weighted sums over the micro-batches of one phase."""

    loss: Tensor | None = None
    weight: Items = 0.0
    items: Items | None = None
    components: dict[str, Tensor] = field(default_factory=dict)

    def plain(self) -> PhaseSums:
        """The sums as Python numbers: 1 / an integer tensor would be a float32 and lose digits."""
        return PhaseSums(
            loss=0.0 if self.loss is None else float(self.loss),
            weight=float(self.weight),
            items=None if self.items is None else float(self.items),
            components={name: float(value) for name, value in self.components.items()},
        )


class AccumulationWindow:
    """Runs windows. Built once; everything that can be looked up beforehand is."""

    def __init__(
        self,
        *,
        model: nn.Module,
        adapter: TrainingAdapter,
        strategy: TrainingStrategy,
        optimizers: OptimizerBundle,
        schedulers: SchedulerBundle,
        scaler: Any,
        max_grad_norm: float,
        notify: Callable[[str], None],
        custom_loss: CustomLoss | None,
        dumps: NonFiniteDumps,
        fillers: Fillers,
        halve_when_out_of_memory: bool = False,
    ) -> None:
        self.model = model
        self.adapter = adapter
        self.strategy = strategy
        self.optimizers = optimizers
        self.schedulers = schedulers
        self.scaler = scaler
        self.max_grad_norm = max_grad_norm
        self.notify = notify
        self.custom_loss = custom_loss
        self.dumps = dumps
        self.fillers = fillers
        self.buffers = BufferGuard(adapter.module)
        self.halve_when_out_of_memory = halve_when_out_of_memory
        listens = type(adapter).on_optimizer_step is not TrainingAdapter.on_optimizer_step
        self._recipe_listens = listens or "on_optimizer_step" in vars(adapter)
        self._needs_items = False  # while a window runs in halves
        self._routes = {phase.name: route_names(phase) for phase in adapter.phases}
        self._owned = {n: self._parameters_of(routes) for n, routes in self._routes.items()}

    def _parameters_of(self, routes: Routes) -> list[nn.Parameter]:
        return [p for name in routes for p in self.optimizers.parameters(name)]

    def count_labels(self, batches: Sequence[MicroBatch]) -> int:
        """Entries that a custom loss counts; 0 where it counts none."""
        counts = self.custom_loss is not None and self.custom_loss.is_normalised
        return self.custom_loss.count(batches) if counts and self.custom_loss is not None else 0

    def run(self, window: Window) -> UpdateResult:
        """Run every phase that is due over the micro-batches, and step its routes."""
        result = UpdateResult()
        for stage in self._stages(window):
            part = UpdateResult()
            before = self.dumps.random_states()
            self.buffers.remember()
            if self.halve_when_out_of_memory:
                self._run_stage_halving(stage, window, part)
            else:
                self._run_stage(stage, window, part)
            if part.skipped is None:
                result.take(part)
                continue
            self.buffers.restore()
            if result.skipped is None:
                self._dump(stage, window, part.skipped, before)
                result.skipped = part.skipped
        if result.stepped:
            self.strategy.scheduler_step(self.schedulers, result.stepped)
            self._tell_recipe(result.stepped, window.step)
        return result

    def _tell_recipe(self, stepped: Routes, step: int) -> None:
        """Recipes may read weights here (averages of their own): they find them whole."""
        if not self._recipe_listens:
            return
        with self.strategy.whole_model(self.model):
            self.adapter.on_optimizer_step(stepped, step)

    def _stages(self, window: Window) -> list[tuple[TrainingPhaseSpec, ...]]:
        """Groups of phases between which the weights move; a spec never mixes the two orders."""
        due = tuple(self._due(window))
        if due[0].optimizer_step_after_phase:
            return [(phase,) for phase in due]
        return [due]

    def _due(self, window: Window) -> Sequence[TrainingPhaseSpec]:
        if window.batches or window.shared is None:
            named = window.batches[0].phase
        else:  # of several processes one may have no micro-batch of its own
            named = window.shared.found().phase
        if any(batch.phase != named for batch in window.batches):
            names = sorted({str(batch.phase) for batch in window.batches})
            raise RecipeError(
                f"One accumulation window mixes the training phases {', '.join(names)}; every "
                "batch of a window must name the same one."
            )
        if named is None:
            return self.adapter.due_phases(window.step)
        return (self.adapter.select_phase(named),)

    def _dump(
        self,
        stage: tuple[TrainingPhaseSpec, ...],
        window: Window,
        reason: str,
        before: RandomStates | None,
    ) -> None:
        # A scaler finds its scale by overflowing gradients now and then: nothing to look into.
        expected = self.scaler is not None and reason.startswith("the gradient")
        if not expected:
            self.dumps.write(reason, window, stage, before)

    def _run_stage_halving(
        self, stage: tuple[TrainingPhaseSpec, ...], window: Window, result: UpdateResult
    ) -> None:
        """Run a stage; where memory runs out, again from its start in micro-batches of half size.

        The gradient is the same, since losses are means over ``num_items``; a loss that carries
        none is refused. Several processes do it together.
        """
        try:
            self._run_in_parts(stage, window, result)
        finally:
            self._needs_items = False

    def _run_in_parts(
        self, stage: tuple[TrainingPhaseSpec, ...], window: Window, result: UpdateResult
    ) -> None:
        while True:
            try:
                return self._run_stage(stage, window, result)
            except StepOutOfMemoryError as error:
                problem = str(error)
                window = self._in_halves(window, error)
            # Outside of the handler: the exception has kept the failed graph alive until here.
            logger.warning("%s Running it again in halves.", problem)
            self._forget(stage)
            result.num_items, result.components = None, {}
            self._needs_items = True

    def _in_halves(self, window: Window, error: StepOutOfMemoryError) -> Window:
        if self.strategy.world_size > 1:
            return share_halves(self.strategy, window, error)
        try:
            return replace(window, batches=halved(window.batches))
        except IndivisibleBatchError as reason:
            raise StepOutOfMemoryError(f"{error} (Not retried: {reason}.)") from error

    def _forget(self, stage: tuple[TrainingPhaseSpec, ...]) -> None:
        """Undo what a stage has done so far, and give its memory back."""
        self.buffers.restore()
        routes = tuple(dict.fromkeys(n for phase in stage for n in self._routes[phase.name]))
        self.strategy.zero_grad(self.optimizers, routes)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _run_stage(
        self, phases: tuple[TrainingPhaseSpec, ...], window: Window, result: UpdateResult
    ) -> None:
        loss = 0.0
        seen: set[str] = set()
        for phase in phases:
            routes = self._routes[phase.name]
            # Two phases on one route are two averages: keep the first one's gradient aside.
            stash = GradientStash(self._owned[phase.name]) if seen & set(routes) else None
            loss += self._run_phase(phase, window, result)
            if stash is not None:
                stash.add_back()
            seen.update(routes)
        stepping = tuple(dict.fromkeys(n for phase in phases for n in self._routes[phase.name]))
        self._finish(stepping, loss, window.step, result)

    def _run_phase(self, phase: TrainingPhaseSpec, window: Window, result: UpdateResult) -> float:
        """Accumulate one phase's normalised gradient; returns the phase's mean loss."""
        if self.strategy.world_size > 1:
            return self._normalise(phase, self._run_shared(phase, window), result)
        total = _PhaseSum()
        self._run_micro_batches(phase, window, total, alone=len(window.batches) == 1)
        return self._normalise(phase, total.plain(), result)

    def _run_shared(self, phase: TrainingPhaseSpec, window: Window) -> PhaseSums:
        """Run this rank's share; whatever happens, it takes part in what the ranks do together."""
        total = _PhaseSum()
        problem: Exception | None = None
        self.strategy.begin_phase(self._owned[phase.name])
        try:
            self._run_micro_batches(phase, window, total, alone=False)
        except StepOutOfMemoryError as error:
            # Without its traceback, which keeps the failed graph alive.
            problem, error.__cause__ = error.with_traceback(None), None
        except Exception as error:
            problem = error
        if problem is not None and self.strategy.needs_equal_work:
            raise problem  # the others wait in the middle of a forward: nothing can be finished
        own = PhaseSums() if problem is not None else total.plain()
        assert window.shared is not None
        return share_phase(self.strategy, window.shared, phase.name, own, problem)

    def _run_micro_batches(
        self, phase: TrainingPhaseSpec, window: Window, total: _PhaseSum, *, alone: bool
    ) -> None:
        batches = window.batches
        if self.strategy.needs_equal_work:
            batches = self.fillers.filled_up(window)
        with self.adapter.phase_boundaries(phase):
            for index, batch in enumerate(batches):
                last = index == len(batches) - 1
                context = TrainingContext(
                    phase, batch.inputs, window.step, window.epoch, True, batch.info
                )
                counts = index < len(window.batches)
                try:
                    if self.strategy.world_size == 1:
                        self._forward_backward(context, window, total, alone)
                    else:
                        with self.strategy.no_sync(self.model, enabled=not last):
                            self._forward_backward(context, window, total, alone, counts)
                except torch.OutOfMemoryError as error:
                    told = describe_exhaustion(batch, phase.name, error)
                    raise StepOutOfMemoryError(told) from error
                if not last:
                    self.notify("on_substep_end")

    def _forward_backward(
        self,
        context: TrainingContext,
        window: Window,
        total: _PhaseSum,
        alone: bool,
        counts: bool = True,
    ) -> None:
        components: Mapping[str, Tensor] = {}
        items: Items | None = None
        if self.custom_loss is None:
            output = self.strategy.execute_training_phase(self.model, self.adapter, context)
            assert output.loss is not None  # the adapter has checked it
            loss, items, components = output.loss, output.num_items, output.losses
        else:
            with self.strategy.autocast_context():
                loss = self.custom_loss(self.adapter, context, window)
        if not counts:
            self.strategy.backward(loss * 0.0, scaler=self.scaler)
            return
        first = total.loss is None
        if not first and (items is None) != (total.items is None):
            raise RecipeError(
                f"Phase '{context.phase.name}' gave num_items for some micro-batches of a window "
                "and not for others."
            )
        counted = self.custom_loss is not None and self.custom_loss.is_normalised
        if items is None and self._needs_items and not counted:
            raise RecipeError(
                f"oom_retry_halves: phase '{context.phase.name}' gives no num_items, so halves of "
                "its micro-batches would not have the same gradient. Return num_items with the "
                "loss, or lower the batch size."
            )
        weight: Items = 1.0 if alone or items is None else items
        weighted = loss if isinstance(weight, float) and weight == 1.0 else loss * weight
        self.strategy.backward(weighted, scaler=self.scaler)
        total.loss = weighted.detach() if total.loss is None else total.loss + weighted.detach()
        total.weight = total.weight + weight
        if items is not None:
            total.items = items if total.items is None else total.items + items
        if components:
            _add_components(total.components, components, weight)

    def _normalise(self, phase: TrainingPhaseSpec, total: PhaseSums, result: UpdateResult) -> float:
        """Divide by the window's items; record the phase's means in ``result``."""
        normalised = self.custom_loss is not None and self.custom_loss.is_normalised
        scale = 1.0 if normalised else total.weight
        if scale not in (0.0, 1.0):
            self.strategy.normalize_gradients(gradients(self._owned[phase.name]), scale)
        mean = total.loss / scale if scale else math.nan
        if total.items is not None:
            result.num_items = (result.num_items or 0.0) + total.items
        prefix = f"{phase.name}/" if len(self._routes) > 1 else ""
        for name, value in total.components.items():
            result.components[prefix + name] = value / (scale or math.nan)
        if prefix and not total.components:
            result.components[prefix + "loss"] = mean
        return mean

    def _finish(self, routes: Routes, loss: float, step: int, result: UpdateResult) -> None:
        """Check, clip and step; or drop the gradients and say why."""
        strategy, optimizers = self.strategy, self.optimizers
        strategy.unscale(optimizers, routes, scaler=self.scaler)
        grads = gradients(self._parameters_of(routes))
        norm = float(strategy.gradient_norm(grads))
        reason = None
        if not math.isfinite(loss):
            reason = f"the loss is {loss}"
        elif not math.isfinite(norm):
            reason = f"the gradient norm is {norm}"
        # Loss and norm are those of all ranks, on each the same bits, and so is the verdict; were
        # it not, the ranks would find themselves at different steps with the next window.
        if reason is None:
            if self.max_grad_norm > 0:
                strategy.clip_grad_norm(grads, norm, self.max_grad_norm)
            self.adapter.on_before_optimizer_step(routes, step)
            self.notify("on_pre_optimizer_step")
            strategy.optimizer_step(optimizers, routes, scaler=self.scaler)
            self.notify("on_optimizer_step")
            result.loss += loss
            result.stepped += routes
        else:
            result.skipped = reason
        strategy.update_scaler(self.scaler, skipped=reason is not None)
        strategy.zero_grad(optimizers, routes)
        result.grad_norm = norm


def _add_components(
    sums: dict[str, Tensor], components: Mapping[str, Tensor], weight: Items
) -> None:
    """Add named loss terms; a lone ``loss`` says nothing that the total does not."""
    if len(components) == 1 and "loss" in components:
        return
    for name, value in components.items():
        part = value.detach() * weight
        sums[name] = part if name not in sums else sums[name] + part
