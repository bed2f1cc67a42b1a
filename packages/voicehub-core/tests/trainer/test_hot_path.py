"""What a step costs beyond its arithmetic: no walk over modules, no waiting per micro-batch."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import nn

from voicehub.adapters.base import TrainingAdapter
from voicehub.specs.model import ModelTrainingSpec
from voicehub.specs.phase import PhaseKind, TrainingPhaseSpec
from voicehub.specs.support import TrainingSupport
from voicehub.trainer.callbacks import TrainerCallback
from voicehub.trainer.trainer import Trainer

WALKS = (
    "modules",
    "named_modules",
    "children",
    "named_children",
    "parameters",
    "named_parameters",
    "buffers",
    "named_buffers",
    "state_dict",
    "train",
    "eval",
    "apply",
    "requires_grad_",
)


class Pair(nn.Module):
    """Two components of ten layers, one with a frozen part."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(*(nn.Linear(3, 3) for _ in range(10)))
        self.discriminator = nn.Sequential(*(nn.Linear(3, 3) for _ in range(10)))
        self.generator[0].requires_grad_(False)


class EqualFrames(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Five frames each, so that collating reads no value either."""

    deterministic = True

    def __init__(self, size: int) -> None:
        self.features = torch.randn(size, 5, 3, generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"features": self.features[index], "mask": torch.ones(5, dtype=torch.bool)}


class PairAdapter(TrainingAdapter):
    supports_custom_recipe = True

    def training_step_loss(self, inputs: Any, phase: TrainingPhaseSpec) -> dict[str, Any]:
        features, frames = inputs["features"], inputs["mask"].sum()
        hidden = self.model.generator(features)
        if phase.name == "discriminator":
            hidden = hidden.detach()
        errors = self.model.discriminator(hidden).square().sum(-1)
        return {"loss": (errors * inputs["mask"]).sum() / frames, "num_items": frames}


def two_phases() -> ModelTrainingSpec:
    return ModelTrainingSpec(
        model_type="pair",
        family="toy",
        support=TrainingSupport.CUSTOM,
        module_paths=("",),
        phases=tuple(
            TrainingPhaseSpec(
                name=name,
                kind=kind,
                component_paths=(name,),
                optimizer_names=(name,),
                forward_component=name,
                detach_inputs=("features",),
                optimizer_step_after_phase=True,
            )
            for name, kind in (
                ("discriminator", PhaseKind.DISCRIMINATOR),
                ("generator", PhaseKind.GENERATOR),
            )
        ),
    )


class WatchSteps(TrainerCallback):
    """Counts walks over modules, and profiles, from the third step on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.walks: Counter[str] = Counter()
        self.operators: Counter[str] = Counter()
        self.updates = 0
        self._profiler: Any = None
        self._counting = False
        for name in WALKS:
            monkeypatch.setattr(nn.Module, name, self._counted(name, getattr(nn.Module, name)))

    def _counted(self, name: str, method: Any) -> Any:
        def counted(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            self.walks[name] += self._counting
            return method(module, *args, **kwargs)

        return counted

    def on_step_begin(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        self._counting = state.global_step >= 2
        if self._counting and self._profiler is None:
            activities = [torch.profiler.ProfilerActivity.CPU]
            self._profiler = torch.profiler.profile(activities=activities)
            self._profiler.__enter__()

    def on_step_end(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        self.updates += self._counting

    def on_epoch_end(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        self._counting = False
        self._profiler.__exit__(None, None, None)
        for event in self._profiler.events():
            self.operators[event.name] += 1


def watched(
    toy: Any, monkeypatch: pytest.MonkeyPatch, accumulation: int, adapter: type[PairAdapter]
) -> WatchSteps:
    torch.manual_seed(0)
    model = Pair()
    with monkeypatch.context() as patch:
        watch = WatchSteps(patch)
        Trainer(
            model=model,
            args=toy.arguments(
                num_train_epochs=1,
                per_device_train_batch_size=2,
                gradient_accumulation_steps=accumulation,
                logging_steps=1000,
            ),
            train_dataset=EqualFrames(2 * 4 * accumulation),
            training_adapter=adapter(model, two_phases()),
            callbacks=[watch],
        ).train()
    assert watch.updates == 2
    return watch


def test_no_step_walks_over_modules(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = watched(toy, monkeypatch, 4, PairAdapter)
    assert watch.operators["aten::linear"] > 0, "the profile is empty"
    assert watch.walks.total() == 0, watch.walks


class WalkingAdapter(PairAdapter):
    """Does what must not happen."""

    def training_step_loss(self, inputs: Any, phase: TrainingPhaseSpec) -> dict[str, Any]:
        self.train_mode()
        output = super().training_step_loss(inputs, phase)
        output["loss"].detach().item()
        return output


def waits(watch: WatchSteps) -> int:
    """Reads of a tensor's value by the host, for which a device would have to finish."""
    return watch.operators["aten::_local_scalar_dense"]


def test_micro_batches_wait_for_nothing(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values are read once an update and phase, however many micro-batches there are."""
    assert waits(watched(toy, monkeypatch, 2, PairAdapter)) == waits(
        watched(toy, monkeypatch, 8, PairAdapter)
    )


def test_these_tests_can_fail(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (watched(toy, monkeypatch, n, WalkingAdapter) for n in (2, 8))
    assert many.walks["train"] > few.walks["train"] > 0
    # Two updates of two phases, six micro-batches more.
    assert waits(many) - waits(few) == 2 * 2 * 6
