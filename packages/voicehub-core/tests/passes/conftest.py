"""Passes that change a small model in every way that the contract tells apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from torch import Tensor, nn

from voicehub.passes.contract import (
    OptimizationCapabilities,
    OptimizationContext,
    OptimizationPass,
    PassResult,
)


class Note(OptimizationPass):
    """Leaves an attribute on the model and takes it away again."""

    pass_id: ClassVar[str] = "note"
    capabilities = OptimizationCapabilities(persistent=True, reversible=True)

    def __init__(self, word: str = "x", fail: bool = False, **capabilities: Any) -> None:
        self.word = word
        self.fail = fail
        self.pass_id = f"note-{word}"  # type: ignore[misc]
        if capabilities:
            self.capabilities = OptimizationCapabilities(  # type: ignore[misc]
                **{"persistent": True, "reversible": True, **capabilities}
            )

    def manifest_configuration(self) -> dict[str, Any]:
        return {"word": self.word}

    def apply(self, model: nn.Module, context: OptimizationContext) -> PassResult:
        if self.fail:
            raise RuntimeError("no room")
        setattr(model, self.word, True)
        return PassResult({"mode": context.mode})

    def restore(self, model: nn.Module) -> None:
        delattr(model, self.word)


class LowRank(OptimizationPass):
    """Replaces ``hidden`` by two factors of its weight: other parameters, the same function."""

    pass_id: ClassVar[str] = "low-rank"
    capabilities = OptimizationCapabilities(
        persistent=True, changes_parameter_names=True, changes_topology=True, portable_export=True
    )

    def __init__(self, *, routed: str = "all", portable: bool = True) -> None:
        self.routed = routed
        if not portable:
            self.capabilities = OptimizationCapabilities(  # type: ignore[misc]
                persistent=True, changes_topology=True
            )

    def manifest_configuration(self) -> dict[str, Any]:
        return {}

    def apply(self, model: Any, context: OptimizationContext) -> PassResult:
        old = model.hidden
        first = nn.Linear(old.in_features, old.in_features, bias=False, dtype=old.weight.dtype)
        nn.init.eye_(first.weight)
        model.hidden = nn.Sequential(first, old)
        return PassResult()

    def route_optimizer_parameters(
        self, model: nn.Module, names: Sequence[str]
    ) -> Mapping[str, Sequence[tuple[str, nn.Parameter]]] | None:
        named = list(model.named_parameters())
        if self.routed == "none":
            return None
        if self.routed == "part":
            named = named[1:]
        if self.routed == "twice":
            named = [*named, named[0]]
        if self.routed == "foreign":
            named = [*named, ("other", nn.Parameter(named[0][1].detach().clone()))]
        return dict.fromkeys(names, named)

    def export_portable_state(self, model: Any) -> Mapping[str, Tensor]:
        first, second = model.hidden
        state = {n: v for n, v in model.state_dict().items() if not n.startswith("hidden.")}
        state["hidden.weight"] = (second.weight @ first.weight).detach()
        state["hidden.bias"] = second.bias.detach()
        return state


@pytest.fixture
def passes() -> SimpleNamespace:
    return SimpleNamespace(Note=Note, LowRank=LowRank)
