"""The kit on a recipe of two phases, two optimizers and a state of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from voicehub.adapters.base import TrainingAdapter
from voicehub.specs.model import ModelTrainingSpec
from voicehub.specs.phase import TrainingPhaseSpec
from voicehub.specs.registry import register_training_spec, unregister_training_spec
from voicehub.testing import CHECKS, ConformanceCase, run_check
from voicehub.testing.runner import ConformanceError

SPEC = ModelTrainingSpec(
    model_type="toy-adversarial",
    family="toy-adversarial",
    support="custom",
    module_paths=("model",),
    field_schemas={"x": {"mask_field": "mask"}, "y": {}},
    default_phase="generator",
    phases=(
        TrainingPhaseSpec(
            name="discriminator",
            kind="discriminator",
            component_paths=("model.judge",),
            optimizer_names=("judge",),
            forward_component="model",
            forward_method="judge_loss",
            optimizer_step_after_phase=True,
        ),
        TrainingPhaseSpec(
            name="generator",
            kind="generator",
            component_paths=("model.maker",),
            optimizer_names=("maker",),
            forward_component="model",
            forward_method="maker_loss",
            optimizer_step_after_phase=True,
        ),
    ),
)


class Pair(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.maker = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 1))
        self.judge = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))

    def made(self, x: Tensor, mask: Tensor) -> Tensor:
        padding = ~mask[..., None]
        return self.maker(x.masked_fill(padding, 0.0)).masked_fill(padding, 0.0)

    def judge_loss(self, x: Tensor, y: Tensor, mask: Tensor) -> dict[str, Any]:
        real = y[..., None].masked_fill(~mask[..., None], 0.0)
        gaps = (self.judge(real) - 1).square() + self.judge(self.made(x, mask).detach()).square()
        frames = mask.sum()
        return {"loss": (gaps[..., 0] * mask).sum() / frames, "num_items": frames}

    def maker_loss(self, x: Tensor, y: Tensor, mask: Tensor) -> dict[str, Any]:
        made = self.made(x, mask)
        gaps = (made[..., 0] - y.masked_fill(~mask, 0.0)).square()
        fooled = (self.judge(made)[..., 0] - 1).square()
        frames = mask.sum()
        loss = ((gaps + 0.01 * fooled) * mask).sum() / frames
        return {"loss": loss, "num_items": frames, "logits": made[..., 0]}


class Wrapper(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.model = Pair(dropout)


class Averaging(TrainingAdapter):
    """Keeps a moving average of the maker, as recipes for synthesis do."""

    supports_custom_recipe = True
    remembers = True

    def setup(self) -> None:
        super().setup()
        if not hasattr(self, "average"):
            self.average = [p.detach().clone() for p in self.module.maker.parameters()]

    def on_optimizer_step(self, names: Any, step: int) -> None:
        for kept, parameter in zip(self.average, self.module.maker.parameters(), strict=True):
            kept.lerp_(parameter.detach(), 0.1)

    def recipe_state_dict(self) -> dict[str, Any]:
        return {"average": [tensor.clone() for tensor in self.average]}

    def load_recipe_state_dict(self, state: Any) -> None:
        if self.remembers:
            self.average = [tensor.clone() for tensor in state["average"]]


class AdversarialCase(ConformanceCase):
    model_type = SPEC.model_type
    lengths = (3, 12)
    adapter: type[TrainingAdapter] = Averaging

    def build(self, *, dropout: float = 0.0) -> TrainingAdapter:
        return self.adapter(Wrapper(dropout), SPEC)

    def item(self, length: int, seed: int) -> dict[str, Tensor]:
        x = torch.randn(length, 3, generator=torch.Generator().manual_seed(seed))
        return {"x": x, "y": torch.tanh(x[:, 0] - x[:, 1])}

    def shuffled(self, items: Any, seed: int) -> list[Any]:
        return [{**item, "y": item["y"].flip(0).roll(1)} for item in items]

    def reload(self, directory: Path) -> TrainingAdapter:
        from safetensors.torch import load_file

        adapter = self.build()
        adapter.setup()
        adapter.load_state_dict(load_file(directory / "model.safetensors"))
        return adapter

    def output_lengths(self, adapter: Any, inputs: Any) -> Tensor:
        return inputs["mask"].sum(1)


@pytest.fixture(autouse=True)
def registered(toy: SimpleNamespace) -> Iterator[None]:
    register_training_spec(SPEC)
    yield
    unregister_training_spec(SPEC.model_type)


@pytest.mark.parametrize("check", CHECKS)
def test_an_adversarial_recipe_holds_every_check(check: str, tmp_path: Path) -> None:
    assert run_check(AdversarialCase(), check, tmp_path).verdict == "held"


def test_an_average_that_a_resume_forgets(tmp_path: Path) -> None:
    class Case(AdversarialCase):
        adapter = type("Forgetful", (Averaging,), {"remembers": False})

    with pytest.raises(ConformanceError, match="recipe's own state differs after a resume"):
        run_check(Case(), "checkpoint", tmp_path)


def test_a_phase_that_trains_the_other_side(tmp_path: Path) -> None:
    class Leaking(Averaging):
        isolate_routes = False

        def on_before_optimizer_step(self, names: Any, step: int) -> None:
            if names == ("judge",):
                with torch.no_grad():
                    self.module.maker[0].bias.add_(1.0)

        def due_phases(self, step: int) -> Any:
            return self.phases[:1]

    class Case(AdversarialCase):
        adapter = Leaking

    with pytest.raises(ConformanceError, match=r"an update of judge changed .*maker\.0\.bias"):
        run_check(Case(), "update", tmp_path)
