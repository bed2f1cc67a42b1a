"""Refusal, order, rollback and manifest of a plan."""

from __future__ import annotations

import json
from typing import Any

import pytest
from torch import nn

from voicehub.errors import (
    OptimizationApplicationError,
    OptimizationCompatibilityError,
    OptimizationError,
    RecipeError,
)
from voicehub.passes.contract import OptimizationContext
from voicehub.passes.plan import OptimizationPlan

TRAINING = OptimizationContext(mode="training", persist_result=True)


@pytest.mark.parametrize(
    ("capabilities", "context", "reason"),
    [
        ({"persistent": False}, {}, "persistent checkpoint output"),
        ({"modes": ("inference",)}, {}, "not for training"),
        ({"devices": ("cuda",)}, {}, "this run is on cpu"),
        ({"dtypes": ("bfloat16",)}, {}, "computes in float32"),
        ({}, {"streaming": True}, "streaming"),
        ({}, {"distributed": True}, "several processes"),
    ],
)
def test_a_pass_that_does_not_fit_is_refused_before_any_is_applied(
    passes: Any, capabilities: dict[str, Any], context: dict[str, Any], reason: str
) -> None:
    model = nn.Linear(1, 1)
    fitting = {"streaming_safe": True, "distributed_safe": True}
    plan = OptimizationPlan([passes.Note("a", **fitting), passes.Note("b", **capabilities)])
    where = OptimizationContext(mode="training", persist_result=True, **context)
    with pytest.raises(OptimizationCompatibilityError, match=f"'note-b'.*{reason}"):
        plan.apply(model, where)
    assert not hasattr(model, "a")


def test_a_failure_undoes_what_can_be_undone(passes: Any) -> None:
    model = nn.Linear(1, 1)
    plan = OptimizationPlan(
        [passes.Note("a"), passes.Note("b", reversible=False), passes.Note("c", fail=True)]
    )
    with pytest.raises(OptimizationApplicationError, match=r"'note-c' failed.*no room.*'note-b'"):
        plan.apply(model, TRAINING)
    assert not hasattr(model, "a") and hasattr(model, "b")
    assert [entry["result"] for entry in plan.manifest()["passes"]] == [{}, {}, {}]


def test_the_manifest_is_strict_json(passes: Any) -> None:
    plan = OptimizationPlan([passes.Note("a"), passes.Note("b")])
    plan.apply(nn.Linear(1, 1), TRAINING)
    manifest = plan.manifest()
    assert json.loads(json.dumps(manifest, allow_nan=False)) == manifest
    assert manifest["format_version"] == 3 and manifest["context"]["persist_result"] is True
    first = manifest["passes"][0]
    assert first["id"] == "note-a" and first["configuration"] == {"word": "a"}
    assert first["capabilities"]["reversible"] is True and first["result"] == {"mode": "training"}
    odd = passes.Note("a")
    odd.manifest_configuration = lambda: {"value": float("nan")}
    with pytest.raises(OptimizationError, match="JSON"):
        OptimizationPlan([odd]).manifest()


@pytest.mark.parametrize(
    ("routed", "error", "message"),
    [
        ("none", OptimizationCompatibilityError, "complete optimizer-routing"),
        ("part", RecipeError, "would never train"),
        ("twice", RecipeError, "routed to both"),
        ("foreign", RecipeError, "foreign to the changed model"),
    ],
)
def test_routes_of_a_changed_topology(
    passes: Any, routed: str, error: type[Exception], message: str
) -> None:
    model = nn.Module()
    model.hidden = nn.Linear(2, 2)
    plan = OptimizationPlan([passes.LowRank(routed=routed)])
    plan.apply(model, TRAINING)
    with pytest.raises(error, match=message):
        plan.new_routes(model, ["default"])


def test_two_passes_that_change_the_parameters_are_refused(passes: Any) -> None:
    plan = OptimizationPlan([passes.LowRank(), passes.LowRank()])
    with pytest.raises(OptimizationCompatibilityError, match="each change the parameters"):
        plan.apply(nn.Linear(1, 1), TRAINING)


def test_only_passes_make_a_plan() -> None:
    with pytest.raises(TypeError, match="OptimizationPass"):
        OptimizationPlan([object()])  # type: ignore[list-item]
