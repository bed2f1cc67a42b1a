"""The one place where the parts of a run are wired together.

Order: seed, build the graph (the adapter's set-up), move it, wrap it, create optimizers, prepare
them, then data, horizon and schedules.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import SGD, AdamW, Optimizer

from voicehub.adapters.auto import AutoTrainingAdapter
from voicehub.adapters.base import TrainingAdapter
from voicehub.adapters.routes import check_optimizers
from voicehub.errors import ConfigurationError
from voicehub.optim.bundle import OptimizerBundle, SchedulerBundle
from voicehub.optim.group_rules import GroupRules
from voicehub.optim.groups import NamedParameters, decay_groups, undecayed
from voicehub.optim.schedules import (
    ClosedFormScheduler,
    PlateauScheduler,
    Scheduler,
    make_multiplier,
)
from voicehub.passes.contract import OptimizationContext
from voicehub.passes.plan import OptimizationPlan
from voicehub.strategies.base import TrainingStrategy
from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.freezing import FreezePolicy
from voicehub.trainer.passes import apply_plan

OptimizerFactory = Callable[[str, NamedParameters, TrainingArguments], Optimizer]
SchedulerFactory = Callable[[str, Optimizer, int, TrainingArguments], Scheduler]


@dataclass(frozen=True)
class OptimizationSources:
    """Where optimizers and schedulers come from when the user brings their own."""

    optimizer: Optimizer | None = None
    scheduler: Scheduler | None = None
    optimizer_class: tuple[type[Optimizer], Mapping[str, Any]] | None = None
    optimizer_factory: OptimizerFactory | None = None
    scheduler_factory: SchedulerFactory | None = None


def check_exclusive(
    model: Any,
    model_init: Any,
    adapter: Any,
    sources: OptimizationSources,
) -> None:
    """Arguments that answer the same question twice."""
    if (model is None) == (model_init is None):
        raise ConfigurationError("Give the Trainer either model or model_init, exactly one.")
    if model_init is not None and (adapter is not None or sources.optimizer is not None):
        raise ConfigurationError(
            "model_init builds the model inside the Trainer; a training_adapter or a ready "
            "optimizer would belong to another one."
        )
    if sources.optimizer_class is not None and sources.optimizer is not None:
        raise ConfigurationError("Give optimizer_cls_and_kwargs or optimizers[0], not both.")
    if sources.optimizer_factory is not None and (sources.optimizer or sources.optimizer_class):
        raise ConfigurationError(
            "optimizer_factory excludes optimizers[0] and optimizer_cls_and_kwargs."
        )
    if sources.scheduler_factory is not None and sources.scheduler is not None:
        raise ConfigurationError("Give scheduler_factory or optimizers[1], not both.")


@dataclass
class Graph:
    """The model on its device, with its adapter and optimizers."""

    adapter: TrainingAdapter
    model: nn.Module
    device: str
    optimizers: OptimizerBundle
    freezing: FreezePolicy | None = None


def seed_everything(seed: int) -> None:
    """Seed Python, NumPy and torch on all devices."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def make_adapter(model: Any, adapter: TrainingAdapter | None) -> TrainingAdapter:
    """The given adapter, one found for a wrapper, or the plain one around a module."""
    if adapter is not None:
        if not isinstance(adapter, TrainingAdapter):
            raise TypeError(f"training_adapter must be a TrainingAdapter, got {adapter!r}.")
        if adapter.model is not model:
            raise ConfigurationError("training_adapter wraps another model than the one passed.")
        return adapter
    return AutoTrainingAdapter.from_model(model)


def build_graph(
    adapter: TrainingAdapter,
    strategy: TrainingStrategy,
    args: TrainingArguments,
    sources: OptimizationSources,
    plan: OptimizationPlan | None = None,
    context: OptimizationContext | None = None,
) -> Graph:
    """Set up the adapter, move the model, apply passes, freeze, wrap, create the optimizers."""
    seed_everything(args.seed)
    adapter.setup()
    if args.gradient_checkpointing:
        adapter.gradient_checkpointing_enable()
    device = args.device
    model = strategy.prepare_device(adapter.module, device=device)
    if plan is not None:
        if plan.changes_parameters and sources.optimizer is not None:
            raise ConfigurationError(
                "A ready optimizer holds the parameters of the model as it was; a pass of the "
                "optimization plan changes them. Use optimizer_factory or optimizer_cls_and_kwargs."
            )
        apply_plan(plan, context, adapter, args, strategy)
    adapter.move_inputs = functools.partial(strategy.prepare_input, device=device)
    adapter = strategy.prepare_training_adapter(adapter, device=device)
    # After the parameters are those that train: a strategy may have put its own in their place.
    freezing = FreezePolicy(adapter, args.freeze) if args.freeze else None
    model = strategy.prepare_model(model, device=device)
    optimizers = OptimizerBundle(_create_optimizers(adapter, args, sources))
    return Graph(adapter, model, device, optimizers, freezing)


def _create_optimizers(
    adapter: TrainingAdapter, args: TrainingArguments, sources: OptimizationSources
) -> dict[str, Optimizer]:
    if args.param_groups and (sources.optimizer or sources.optimizer_factory):
        raise ConfigurationError(
            "param_groups would not be read: the groups of optimizers[0] or of optimizer_factory "
            "are made outside the Trainer. Set rates and decay there, or leave these out."
        )
    if sources.optimizer is not None:
        own = {_only_route(adapter, "optimizers"): sources.optimizer}
        check_optimizers(own, adapter.routes)
        return own
    exempt = undecayed([adapter.module])
    rules = GroupRules(adapter.module, args.param_groups, exempt)
    optimizers = {}
    for name, named in adapter.routes.items():
        if sources.optimizer_factory is not None:
            made = sources.optimizer_factory(name, named, args)
            if not isinstance(made, Optimizer):
                raise TypeError(f"optimizer_factory('{name}') must return an Optimizer, got {made}")
            optimizers[name] = made
            continue
        groups = adapter.optimizer_groups(name, named, args)
        if groups is None:
            groups = decay_groups(
                named,
                learning_rate=args.learning_rate,
                weight_decay=args.weight_decay,
                exempt=exempt,
            )
        optimizers[name] = _create_optimizer(rules.split(groups), args, sources)
    rules.check_used()
    check_optimizers(optimizers, adapter.routes)
    return optimizers


def _create_optimizer(
    groups: Sequence[dict[str, Any]], args: TrainingArguments, sources: OptimizationSources
) -> Optimizer:
    if sources.optimizer_class is not None:
        kind, options = sources.optimizer_class
        return kind(groups, **options)
    if args.optim == "sgd":
        return SGD(groups, lr=args.learning_rate)
    return AdamW(
        groups,
        lr=args.learning_rate,
        betas=(args.adam_beta1, args.adam_beta2),
        eps=args.adam_epsilon,
        fused=True if args.adamw_fused else None,
    )


def _only_route(adapter: TrainingAdapter, what: str) -> str:
    if len(adapter.routes) != 1:
        raise ConfigurationError(
            f"A single object was given as {what}, but the recipe has the routes "
            f"{', '.join(adapter.routes)}. Use optimizer_factory / scheduler_factory."
        )
    return next(iter(adapter.routes))


def build_schedulers(
    graph: Graph,
    args: TrainingArguments,
    route_updates: Mapping[str, int],
    sources: OptimizationSources,
) -> SchedulerBundle:
    """One schedule per route, over that route's own number of updates."""
    if sources.scheduler is not None:
        return SchedulerBundle({_only_route(graph.adapter, "optimizers[1]"): sources.scheduler})
    schedulers: dict[str, Scheduler] = {}
    for name, optimizer in graph.optimizers.optimizers.items():
        total = route_updates[name]
        if sources.scheduler_factory is not None:
            schedulers[name] = sources.scheduler_factory(name, optimizer, total, args)
            continue
        warmup = args.get_warmup_steps(total)
        multiplier = make_multiplier(args.lr_scheduler_type, total, warmup, args.schedule_options)
        if args.lr_scheduler_type == "plateau":
            schedulers[name] = PlateauScheduler(
                optimizer,
                multiplier,
                greater_is_better=bool(args.greater_is_better),
                options=args.schedule_options,
            )
        else:
            schedulers[name] = ClosedFormScheduler(optimizer, multiplier)
    return SchedulerBundle(schedulers)


@dataclass(frozen=True)
class RouteSummary:
    """One parameter group of one route, as shown before the first update."""

    route: str
    group: str
    tensors: int
    parameters: int
    learning_rate: float
    weight_decay: float
    scheduled_updates: int
    warmup_updates: int
    frozen: str = ""  # which freeze rules hold a part of the group, and when


def summarize_routes(
    graph: Graph, args: TrainingArguments, route_updates: Mapping[str, int]
) -> list[RouteSummary]:
    """What trains: tensors, parameters, base rate, decay and updates of every group."""
    rows = []
    for route, optimizer in graph.optimizers.optimizers.items():
        for index, group in enumerate(optimizer.param_groups):
            trainable = [p for p in group["params"] if p.requires_grad]
            rows.append(
                RouteSummary(
                    route=route,
                    group=str(group.get("name", index)),
                    tensors=len(trainable),
                    parameters=sum(p.numel() for p in trainable),
                    learning_rate=float(group.get("initial_lr", group["lr"])),
                    weight_decay=float(group.get("weight_decay", 0.0)),
                    scheduled_updates=route_updates[route],
                    warmup_updates=args.get_warmup_steps(route_updates[route]),
                    frozen=graph.freezing.frozen_when(trainable) if graph.freezing else "",
                )
            )
    return rows
