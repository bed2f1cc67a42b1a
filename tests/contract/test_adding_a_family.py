"""A1: what a new family shows before it is one; the kit asks for it, and finds what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import support_matrix
import torch
from recipes import WRAPPED, Regressor, Wrapped, collate, seeded

from voicehub.adapters.base import TrainingAdapter
from voicehub.plugins.discovery import entry_points
from voicehub.plugins.groups import CONFORMANCE
from voicehub.specs.registry import list_training_specs
from voicehub.testing import CHECKS, ConformanceCase, cases, outcomes, run_check
from voicehub.testing.runner import ConformanceError

#: The statement's own list, by the kit's names.
ASKED = ("gradients", "ownership", "update", "evaluation", "checkpoint", "export")


class Single(Wrapped):
    """The toy wrapper in single precision, as the kit takes its families."""

    def _load_weights(self) -> None:
        super()._load_weights()
        self.model.float()


class Case(ConformanceCase):
    """The toy wrapper as a family; a test changes its adapter or its network."""

    model_type = WRAPPED.model_type
    lengths = (3, 9)

    def build(self, *, dropout: float = 0.0) -> TrainingAdapter:
        return TrainingAdapter(Single("tiny"), WRAPPED)

    def item(self, length: int, seed: int) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(seed)
        features = torch.randn(length, 3, generator=generator)
        return {"features": features, "targets": torch.tanh(features[:, 0])}

    def collate(self, items: Any) -> Any:
        return collate(items)

    def reload(self, directory: Path) -> TrainingAdapter:
        return TrainingAdapter(Single(directory), WRAPPED)


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch, wrapped_type: str) -> None:
    """The type is registered, and outcomes stay out of this run's own report."""
    monkeypatch.setattr(outcomes, "_outcomes", {})


def with_adapter(**methods: Any) -> Case:
    adapter = type("Adapter", (TrainingAdapter,), methods)
    return type("Broken", (Case,), {"build": lambda self, **_: adapter(Single("tiny"), WRAPPED)})()


@pytest.mark.parametrize("check", ASKED)
def test_A1_a_sound_family_shows_each(check: str, tmp_path: Path) -> None:
    assert check in CHECKS
    assert run_check(Case(), check, tmp_path).verdict == "held"


def test_A1_a_gradient_that_never_arrives_is_found(tmp_path: Path) -> None:
    class Cut(Single):
        def _load_weights(self) -> None:
            super()._load_weights()
            self.model.unused = torch.nn.Linear(2, 2)

    class Broken(Case):
        def build(self, *, dropout: float = 0.0) -> TrainingAdapter:
            return TrainingAdapter(Cut("tiny"), WRAPPED)

    with pytest.raises(ConformanceError, match=r"no gradient reaches unused\.bias"):
        run_check(Broken(), "gradients", tmp_path)


def test_A1_a_parameter_that_does_not_move_is_found(tmp_path: Path) -> None:
    def on_optimizer_step(self: Any, names: Any, step: int) -> None:
        with torch.no_grad():
            self.module.output.bias.copy_(seeded(Regressor).output.bias.float())

    with pytest.raises(ConformanceError, match=r"output\.bias did not move"):
        run_check(with_adapter(on_optimizer_step=on_optimizer_step), "update", tmp_path)


def test_A1_a_parameter_of_two_owners_is_found(tmp_path: Path) -> None:
    def setup(self: Any) -> None:
        TrainingAdapter.setup(self)
        self.routes = {**self.routes, "again": self.routes["default"]}

    with pytest.raises((ConformanceError, ValueError), match=r"again|owners"):
        run_check(with_adapter(setup=setup), "ownership", tmp_path)


def test_A1_an_evaluation_that_changes_weights_is_found(tmp_path: Path) -> None:
    def evaluation_rows(self: Any, *_: Any) -> list[Any]:
        with torch.no_grad():
            self.module.output.bias.add_(0.1)
        return []

    with pytest.raises(ConformanceError, match=r"output\.bias"):
        run_check(with_adapter(evaluation_rows=evaluation_rows), "evaluation", tmp_path)


def test_A1_state_that_no_checkpoint_holds_is_found(tmp_path: Path) -> None:
    def training_step_loss(self: Any, inputs: Any, phase: Any) -> Any:
        self.calls = getattr(self, "calls", 0) + 1
        output = self.forward_component(inputs, phase)
        return {**output, "loss": output["loss"] * self.calls}

    with pytest.raises(ConformanceError, match="the resumed run ends elsewhere"):
        run_check(with_adapter(training_step_loss=training_step_loss), "checkpoint", tmp_path)


def test_A1_an_artifact_that_loses_weights_is_found(tmp_path: Path) -> None:
    class Broken(Case):
        def reload(self, directory: Path) -> TrainingAdapter:
            adapter = super().reload(directory)
            adapter.model.load_for_training()
            adapter.model.model = seeded(Regressor, seed=4).float()
            return adapter

    with pytest.raises(ConformanceError, match="differs"):
        run_check(Broken(), "export", tmp_path)


def test_A1_exclusions_are_in_the_generated_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    page = support_matrix.page()
    with_case = {entry.name for entry in entry_points(CONFORMANCE)}
    ours = [
        spec.model_type
        for spec in list_training_specs()
        if f"`{spec.model_type}`" in page and spec.model_type in with_case
    ]
    assert ours
    exempt = type("Exempt", (Case,), {"exemptions": {"padding_mates": "a norm over the batch"}})
    monkeypatch.setattr(cases, "load_case", lambda name: exempt())
    excluded = support_matrix.page().split("## What is excluded")[1]
    for name in ours:
        assert f"| `{name}` | `padding_mates` | a norm over the batch |" in excluded
