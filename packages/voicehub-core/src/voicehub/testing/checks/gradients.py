"""Where gradients go and what they move."""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from voicehub.adapters.routes import check_optimizers, route_names
from voicehub.testing.case import ConformanceCase
from voicehub.testing.probe import Probe, build_adapter
from voicehub.testing.samples import draw_items
from voicehub.testing.training import differing, listed, make_trainer, state_of
from voicehub.trainer.callbacks import TrainerCallback

_ROUNDS = 3


def gradients(case: ConformanceCase, directory: Path) -> str:
    """Every trainable parameter gets a finite gradient that is not zero.

    Looked at over a few steps: a low-rank update begins with one factor at zero, which lets no
    gradient through to the other until it has moved.
    """
    probe = Probe(case, double=False)
    trainable = {name for named in probe.adapter.routes.values() for name, _ in named}
    reached: set[str] = set()
    for number in range(_ROUNDS):
        for phase, result in probe.measure(draw_items(case, 6, number)).items():
            found = {name: g for name, g in result.gradients.items() if g is not None}
            wild = [name for name, gradient in found.items() if not gradient.isfinite().all()]
            assert not wild, f"{phase}: the gradient of {listed(wild)} is not finite"
            reached.update(name for name, gradient in found.items() if gradient.any())
            _descend(probe, found, 1e-3 / result.items)
    foreign = sorted(reached - trainable)
    assert not foreign, f"gradients reach what nothing trains: {listed(foreign)}"
    missing = sorted(trainable - reached)
    declared = [name for name in missing if any(fnmatchcase(name, p) for p in case.unreached)]
    lost = [name for name in missing if name not in declared]
    assert not lost, f"no gradient reaches {listed(lost)}"
    stale = [p for p in case.unreached if not any(fnmatchcase(name, p) for name in missing)]
    assert not stale, f"unreached names {listed(stale)}, which gradients do reach; remove it"
    also = f"; {len(declared)} declared unreached" if declared else ""
    return f"{len(reached)} of {len(trainable)} parameters{also}"


def _descend(probe: Probe, gradients: dict[str, Tensor], rate: float) -> None:
    with torch.no_grad():
        for name, parameter in probe.adapter.module.named_parameters():
            if name in gradients:
                parameter.sub_((rate * gradients[name]).to(parameter.dtype))


def ownership(case: ConformanceCase, directory: Path) -> str:
    """Each trainable parameter is in one route, and once in the optimizer of that route (R5)."""
    trainer = make_trainer(case, draw_items(case, 4, 0), directory)
    graph = trainer.graph
    routes = graph.adapter.routes
    check_optimizers(graph.optimizers.optimizers, routes)
    owners = Counter(id(parameter) for named in routes.values() for _, parameter in named)
    frozen_by_phase = {
        id(p)
        for phase in graph.adapter.phases
        for path in phase.frozen_component_paths
        for p in graph.adapter.components[path].parameters()
    }
    for name, parameter in graph.adapter.module.named_parameters():
        count = owners[id(parameter)]
        if parameter.requires_grad and id(parameter) not in frozen_by_phase:
            assert count == 1, f"{name} has {count} owners"
        assert count <= 1, f"{name} has {count} owners"
    for route, optimizer in graph.optimizers.optimizers.items():
        held = Counter(id(p) for group in optimizer.param_groups for p in group["params"])
        wanted = {id(parameter) for _, parameter in routes[route]}
        assert wanted == {key for key in held if key in owners}, (
            f"route {route!r} and its optimizer hold different parameters"
        )
        assert max(held.values()) == 1, f"the optimizer of {route!r} holds a parameter twice"
    return ", ".join(f"{name}: {len(named)} tensors" for name, named in routes.items())


class _Nonzero(TrainerCallback):
    """Notes which parameters have a gradient when their optimizer is about to step."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        """The gradients are final here."""
        for named in context["adapter"].routes.values():
            self.names.update(n for n, p in named if p.grad is not None and bool(p.grad.any()))


def update(case: ConformanceCase, directory: Path) -> str:
    """One update moves the parameters with a gradient, and nothing else."""
    watcher = _Nonzero()
    adapter = build_adapter(case)
    before = state_of(adapter)
    trainer = make_trainer(
        case,
        draw_items(case, 8, 1),
        directory,
        adapter=adapter,
        callbacks=[watcher],
        max_steps=1,
        learning_rate=1e-2,
        weight_decay=0.0,
    )
    trainer.train()
    due = {route for phase in adapter.due_phases(0) for route in route_names(phase)}
    owned = {name for route in due for name, _ in adapter.routes[route]}
    changed = set(differing(before, state_of(adapter)))
    buffers = {name for name, _ in adapter.module.named_buffers()}
    strangers = sorted(changed - owned - buffers)
    assert not strangers, f"an update of {', '.join(sorted(due))} changed {listed(strangers)}"
    still = sorted(watcher.names - changed)
    assert not still, f"{listed(still)} did not move although a gradient arrived"
    without = sorted(changed - watcher.names - buffers)
    assert not without, f"{listed(without)} moved without a gradient"
    return f"{len(changed - buffers)} of {len(owned)} parameters moved"
