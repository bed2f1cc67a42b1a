"""Where a run and its optimization plan meet."""

from __future__ import annotations

from typing import Any

from voicehub.adapters.base import TrainingAdapter
from voicehub.errors import ConfigurationError, OptimizationError
from voicehub.models.lifecycle import PreTrainedSpeechModel
from voicehub.passes.contract import OptimizationContext
from voicehub.passes.plan import OptimizationPlan
from voicehub.passes.torch_compile import TorchCompilePass
from voicehub.strategies.base import TrainingStrategy
from voicehub.trainer.arguments import TrainingArguments


def choose_plan(
    plan: OptimizationPlan | None, context: OptimizationContext | None, args: TrainingArguments
) -> OptimizationPlan | None:
    """The plan of a run.

    Raises:
        ConfigurationError: two settings contradict each other, or the context is not one of
            training with a result that is kept.
    """
    if plan is not None and not isinstance(plan, OptimizationPlan):
        raise TypeError(f"optimization_plan must be an OptimizationPlan, got {plan!r}.")
    if plan is not None and args.torch_compile:
        raise ConfigurationError(
            "torch_compile and optimization_plan are both set: put TorchCompilePass() into the "
            "plan, where its place among the passes is clear."
        )
    if context is not None:
        if plan is None:
            raise ConfigurationError("optimization_context needs an optimization_plan.")
        if context.mode != "training" or not context.persist_result:
            raise ConfigurationError(
                "The Trainer applies a plan with mode='training' and persist_result=True, got "
                f"mode={context.mode!r} and persist_result={context.persist_result}."
            )
    return OptimizationPlan([TorchCompilePass()]) if args.torch_compile else plan


def apply_plan(
    plan: OptimizationPlan,
    context: OptimizationContext | None,
    adapter: TrainingAdapter,
    args: TrainingArguments,
    strategy: TrainingStrategy,
) -> None:
    """Apply a plan to the model on its device, and give the adapter its new routes."""
    if context is None:
        context = OptimizationContext(
            mode="training",
            architecture=adapter.spec.model_type,
            device=args.device,
            dtype="float16" if args.fp16 else "bfloat16" if args.bf16 else "float32",
            distributed=strategy.world_size > 1,
            persist_result=True,
        )
    plan.apply(adapter.module, context)
    routes = plan.new_routes(adapter.module, adapter.routes)
    if routes is not None:
        adapter.replace_routes(routes)
        adapter.portable_state = lambda: plan.portable_state(adapter.module) or {}


def check_export(plan: OptimizationPlan | None, adapter: TrainingAdapter) -> bool:
    """Whether ``save_model`` may export natively under a plan.

    Raises:
        OptimizationError: it cannot write what a fresh model loads; nothing was written.
    """
    if plan is None or not plan.changes_parameters:
        return True
    plan.check_exportable()
    if isinstance(adapter.model, PreTrainedSpeechModel):
        raise OptimizationError(
            f"{type(adapter.model).__name__} writes its own files and holds the changed "
            "parameters; only plain modules are exported from under such a pass."
        )
    return False


def manifest_of(plan: OptimizationPlan | None) -> dict[str, Any] | None:
    """What checkpoints say about the plan."""
    return None if plan is None else plan.manifest()
