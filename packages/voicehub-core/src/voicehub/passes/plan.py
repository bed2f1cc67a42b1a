"""A plan of passes: refuse what cannot hold, apply in order, undo on failure, describe itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from voicehub.errors import (
    OptimizationApplicationError,
    OptimizationCompatibilityError,
    OptimizationError,
)
from voicehub.passes.contract import OptimizationContext, OptimizationPass, PassResult, Routes
from voicehub.passes.routing import check_routes

MANIFEST_FILE = "optimization_manifest.json"
MANIFEST_VERSION = 3


class OptimizationPlan:
    """Passes in the order in which they are applied.

    Raises:
        TypeError: an item is no pass.
    """

    def __init__(self, passes: Sequence[OptimizationPass]) -> None:
        for item in passes:
            if not isinstance(item, OptimizationPass):
                raise TypeError(f"A plan holds OptimizationPass objects, got {item!r}.")
        self.passes = tuple(passes)
        self._applied: dict[int, PassResult] = {}
        self._context: OptimizationContext | None = None

    def validate(self, context: OptimizationContext) -> None:
        """Refuse the plan before anything is transformed.

        Raises:
            OptimizationCompatibilityError: a pass does not fit; the message says which and why.
        """
        for item in self.passes:
            reason = _misfit(item, context)
            if reason is not None:
                raise OptimizationCompatibilityError(f"The pass '{item.pass_id}' {reason}.")
        changing = [item.pass_id for item in self.passes if item.capabilities.changes_parameters]
        if len(changing) > 1:
            raise OptimizationCompatibilityError(
                f"The passes {', '.join(map(repr, changing))} each change the parameters; the "
                "routes of one would not know those of the other. Use one of them."
            )

    def apply(self, model: nn.Module, context: OptimizationContext) -> None:
        """Validate all passes, then apply them.

        Raises:
            OptimizationCompatibilityError: nothing was applied.
            OptimizationApplicationError: a pass failed; those before it that can be undone were.
        """
        self.validate(context)
        for index in range(len(self.passes)):
            self._apply_one(index, model, context)
        self._context = context

    def _apply_one(self, index: int, model: nn.Module, context: OptimizationContext) -> None:
        item = self.passes[index]
        try:
            self._applied[index] = item.apply(model, context)
        except Exception as error:
            left = self._roll_back(model)
            kept = f" Not reversible, still in the model: {', '.join(left)}." if left else ""
            raise OptimizationApplicationError(
                f"The pass '{item.pass_id}' failed ({type(error).__name__}: {error}); the passes "
                f"before it were undone.{kept}"
            ) from error

    def _roll_back(self, model: nn.Module) -> list[str]:
        left = []
        for index in reversed(list(self._applied)):
            item = self.passes[index]
            if item.capabilities.reversible:
                item.restore(model)
            else:
                left.append(repr(item.pass_id))
            del self._applied[index]
        return left

    @property
    def _changing(self) -> OptimizationPass | None:
        found = (item for item in self.passes if item.capabilities.changes_parameters)
        return next(found, None)

    @property
    def changes_parameters(self) -> bool:
        """Whether optimizers need routes anew."""
        return self._changing is not None

    def new_routes(self, model: nn.Module, names: Iterable[str]) -> Routes | None:
        """The routes of a plan that changed the parameters, checked; None where they stay.

        Raises:
            OptimizationCompatibilityError: the pass does not route every optimizer.
            RecipeError: a parameter is routed twice, not at all, or is foreign to the model.
        """
        item, names = self._changing, tuple(names)
        if item is None:
            return None
        routes = item.route_optimizer_parameters(model, names)
        if routes is None or set(routes) != set(names):
            given = "none" if routes is None else ", ".join(sorted(routes))
            raise OptimizationCompatibilityError(
                f"The pass '{item.pass_id}' changes the parameters and must return a complete "
                f"optimizer-routing for {', '.join(names)}; it gave {given}."
            )
        check_routes(model, routes)
        return routes

    def check_exportable(self) -> None:
        """Refuse a portable export that cannot be, before anything is written.

        Raises:
            OptimizationError: a pass changed the parameters and knows no way back.
        """
        item = self._changing
        if item is not None and not item.capabilities.portable_export:
            raise OptimizationError(
                f"The pass '{item.pass_id}' changed the parameters and offers no portable export, "
                "so save_model() would write what no fresh model can load. Checkpoints hold the "
                "changed model and resume."
            )

    def portable_state(self, model: nn.Module) -> Mapping[str, Tensor] | None:
        """Tensors under their original names; None where they have them anyway."""
        item = self._changing
        return None if item is None else item.export_portable_state(model)

    def identity(self) -> list[dict[str, Any]]:
        """Id, version and configuration of every pass: what a resume must find unchanged."""
        return [
            {
                "id": item.pass_id,
                "version": item.pass_version,
                "configuration": _strict(item.manifest_configuration(), item.pass_id),
            }
            for item in self.passes
        ]

    def manifest(self) -> dict[str, Any]:
        """What ``optimization_manifest.json`` holds, once the plan was applied."""
        entries = []
        for index, (item, entry) in enumerate(zip(self.passes, self.identity(), strict=True)):
            kind = f"{type(item).__module__}.{type(item).__qualname__}"
            result = self._applied.get(index, PassResult())
            capabilities = _strict(vars(item.capabilities), item.pass_id)
            metadata = _strict(dict(result.metadata), item.pass_id)
            entries.append(
                {**entry, "kind": kind, "capabilities": capabilities, "result": metadata}
            )
        context = None if self._context is None else _strict(vars(self._context), "context")
        return {"format_version": MANIFEST_VERSION, "context": context, "passes": entries}


def _misfit(item: OptimizationPass, context: OptimizationContext) -> str | None:
    can = item.capabilities
    if context.persist_result and not can.persistent:
        return (
            "gives no persistent checkpoint output: its result would be lost at the first resume. "
            "Training needs passes with the capability 'persistent'"
        )
    if context.mode not in can.modes:
        return f"is for {', '.join(can.modes)}, not for {context.mode}"
    if can.devices and context.device not in can.devices:
        return f"is for {', '.join(can.devices)}, this run is on {context.device}"
    if can.dtypes and context.dtype not in can.dtypes:
        return f"is for {', '.join(can.dtypes)}, this run computes in {context.dtype}"
    if context.streaming and not can.streaming_safe:
        return "does not hold for streaming inputs"
    if context.distributed and not can.distributed_safe:
        return "does not hold with several processes"
    return None


def _strict(value: Any, where: str) -> Any:
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise OptimizationError(f"'{where}' describes itself in other than JSON: {error}") from None
