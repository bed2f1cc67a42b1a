"""What the contract is proved on: a plain module, a wrapper with a single-phase adapter, a GAN with
an auxiliary phase, and a hybrid of two components with a detached boundary. Float64 throughout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from voicehub.adapters.base import TrainingAdapter
from voicehub.models.lifecycle import PreTrainedTTSModel
from voicehub.specs.model import ModelTrainingSpec
from voicehub.specs.phase import PhaseKind, TrainingPhaseSpec
from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.callbacks import TrainerCallback
from voicehub.trainer.trainer import Trainer

DTYPE = torch.float64


# -- data: utterances of 1 to 12 frames --------------------------------------------------------


class Frames(torch.utils.data.Dataset[dict[str, Tensor]]):
    """``features`` (frames, 3) and ``targets`` (frames,); a function of the seed."""

    deterministic = True

    def __init__(self, size: int, seed: int = 0, dtype: torch.dtype = DTYPE) -> None:
        generator = torch.Generator().manual_seed(seed)
        lengths = torch.randint(1, 13, (size,), generator=generator).tolist()
        self.items = [
            {
                "features": torch.randn(n, 3, generator=generator, dtype=dtype),
                "targets": torch.randn(n, generator=generator, dtype=dtype),
            }
            for n in lengths
        ]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return self.items[index]


def collate(items: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Pad to the longest; ``mask`` (batch, frames) marks what is real."""
    lengths = torch.tensor([len(item["targets"]) for item in items])
    pad = nn.utils.rnn.pad_sequence
    return {
        "features": pad([item["features"] for item in items], batch_first=True),
        "targets": pad([item["targets"] for item in items], batch_first=True),
        "mask": torch.arange(int(lengths.max()))[None] < lengths[:, None],
    }


def mean(errors: Tensor, mask: Tensor, **more: Any) -> dict[str, Any]:
    """The mean over valid frames, and how many those are."""
    frames = mask.sum()
    return {"loss": (errors * mask).sum() / frames, "num_items": frames, **more}


# -- a plain module, and the same in a wrapper --------------------------------------------------


class Regressor(nn.Module):
    """One number a frame; mean squared error over valid frames."""

    def __init__(self, dropout: float = 0.0, dtype: torch.dtype = DTYPE) -> None:
        super().__init__()
        self.hidden = nn.Linear(3, 6, dtype=dtype)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(6, 1, dtype=dtype)

    def forward(self, features: Tensor, mask: Tensor, targets: Tensor) -> dict[str, Any]:
        hidden = self.dropout(torch.tanh(self.hidden(features)))
        predictions = self.output(hidden).squeeze(-1)
        return mean((predictions - targets).square(), mask, logits=predictions)


def seeded(build: Any, *arguments: Any, seed: int = 3, **options: Any) -> Any:
    """A module with the same first weights in every call."""
    torch.manual_seed(seed)
    return build(*arguments, **options)


WRAPPED = ModelTrainingSpec(
    "contract-wrapped", "contract", support="native", module_paths=("model",)
)


class Wrapped(PreTrainedTTSModel):
    """A lazy wrapper around ``Regressor`` that writes down what happens to it."""

    default_model_type = "contract-wrapped"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.calls: list[str] = []

    @property
    def training_spec(self) -> ModelTrainingSpec:
        return WRAPPED

    def _validate_training_runtime(self) -> None:
        self.calls.append("validate")

    def _load_weights(self) -> None:
        self.calls.append("load for training" if self.is_training_load else "load")
        self.model = seeded(Regressor)
        stored = Path(self.name_or_path) / "weights.safetensors"
        if stored.is_file():
            self.model.load_state_dict(load_file(stored))

    def _prepare_for_training(self) -> None:
        self.calls.append("prepare")

    def resolve(self, path: str) -> Any:
        self.calls.append(f"resolve {path}")
        return super().resolve(path)

    def artifact_config(self) -> dict[str, Any]:
        return {"hidden": 6}

    def _save_family_files(self, directory: Path) -> None:
        save_file(self.model.state_dict(), directory / "weights.safetensors")

    def export_native(self, directory: Path) -> bool:
        (directory / "config.json").write_text('{"native": true}\n')
        return True


class Remembering(TrainingAdapter):
    """A recipe with state of its own: a running mean of the losses' item counts."""

    native_export_semantics = "inference-export"

    def __init__(self, model: Any, spec: ModelTrainingSpec) -> None:
        super().__init__(model, spec)
        self.speaker = torch.zeros(2, dtype=DTYPE)
        self.graph_was_there: bool | None = None

    def on_optimizer_step(self, names: Sequence[str], step: int) -> None:
        self.speaker = 0.5 * self.speaker + step + 1

    def recipe_state_dict(self) -> dict[str, Any]:
        return {"speaker": self.speaker}

    def load_recipe_state_dict(self, state: Mapping[str, Any]) -> None:
        self.graph_was_there = self.is_ready and bool(self.routes)
        self.speaker = state["speaker"].clone()


# -- a GAN with an auxiliary phase every third step ---------------------------------------------


class Gan(nn.Module):
    """A generator of one number a frame, and its critic, with dropout."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(3, 4, dtype=DTYPE), nn.Tanh(), nn.Dropout(dropout))
        self.voice = nn.Linear(4, 1, dtype=DTYPE)
        self.discriminator = nn.Linear(1, 1, dtype=DTYPE)
        self.seen: list[tuple[str, float]] = []

    def fake(self, features: Tensor) -> Tensor:
        """features (batch, frames, 3) to (batch, frames, 1)."""
        output: Tensor = self.voice(self.generator(features))
        return output


class GanAdapter(TrainingAdapter):
    """LSGAN; an exponential moving average of the generator is state of the recipe."""

    supports_custom_recipe = True

    def setup(self) -> None:
        super().setup()
        if not hasattr(self, "average"):
            self.average = self.model.voice.weight.detach().clone()

    def training_step_loss(self, inputs: Any, phase: TrainingPhaseSpec) -> dict[str, Any]:
        gan: Gan = self.model
        gan.seen.append((phase.name, float(gan.discriminator.weight.detach().sum())))
        fake, targets, mask = gan.fake(inputs["features"]), inputs["targets"], inputs["mask"]
        if phase.name == "discriminator":
            real = gan.discriminator(targets.unsqueeze(-1)).squeeze(-1)
            judged = gan.discriminator(fake.detach()).squeeze(-1)
            return mean((real - 1).square() + judged.square(), mask)
        if phase.name == "generator":
            return mean((gan.discriminator(fake).squeeze(-1) - 1).square(), mask)
        return mean((fake.squeeze(-1) - targets).square(), mask)

    def on_optimizer_step(self, names: Sequence[str], step: int) -> None:
        if "g" in names:
            self.average = torch.lerp(self.average, self.model.voice.weight.detach(), 0.1)

    def recipe_state_dict(self) -> dict[str, Any]:
        return {"average": self.average}

    def load_recipe_state_dict(self, state: Mapping[str, Any]) -> None:
        self.average = state["average"].clone()


def gan_spec(*, sequential: bool = True, auxiliary: bool = True) -> ModelTrainingSpec:
    """Discriminator, generator, and on the generator's route every third step, from step 1 on."""
    order: dict[str, Any] = {"optimizer_step_after_phase": sequential}
    phases = [
        TrainingPhaseSpec(
            "discriminator",
            kind=PhaseKind.DISCRIMINATOR,
            component_paths=("discriminator",),
            optimizer_names=("d",),
            forward_component="discriminator",
            **order,
        ),
        TrainingPhaseSpec(
            "generator",
            kind=PhaseKind.GENERATOR,
            component_paths=("generator", "voice"),
            optimizer_names=("g",),
            forward_component="generator",
            **order,
        ),
        TrainingPhaseSpec(
            "auxiliary",
            kind=PhaseKind.AUXILIARY,
            component_paths=("generator", "voice"),
            optimizer_names=("g",),
            forward_component="generator",
            frequency=3,
            offset=1,
            **order,
        ),
    ]
    return ModelTrainingSpec(
        "contract-gan",
        "contract",
        support="custom",
        module_paths=("",),
        phases=tuple(phases if auxiliary else phases[:2]),
    )


# -- a hybrid of two components with a detached boundary ----------------------------------------


class Hybrid(nn.Module):
    """An encoder with a loss of its own, and a decoder that reads its detached output."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.encoder = nn.Linear(3, 2, dtype=DTYPE)
        self.dropout = nn.Dropout(dropout)
        self.decoder = nn.Linear(2, 1, dtype=DTYPE)


class HybridAdapter(TrainingAdapter):
    """Both phases run in one step and step together; the decoder is due every second step."""

    def training_step_loss(self, inputs: Any, phase: TrainingPhaseSpec) -> dict[str, Any]:
        hybrid: Hybrid = self.model
        hidden = hybrid.dropout(torch.tanh(hybrid.encoder(inputs["features"])))
        if phase.name == "encoder":
            return mean((hidden.sum(-1) - inputs["targets"]).square(), inputs["mask"])
        predictions = hybrid.decoder(hidden.detach()).squeeze(-1)
        return mean((predictions - inputs["targets"]).square(), inputs["mask"], logits=predictions)


HYBRID = ModelTrainingSpec(
    "contract-hybrid",
    "contract",
    support="native",
    module_paths=("",),
    default_phase="decoder",
    phases=(
        TrainingPhaseSpec("encoder", component_paths=("encoder",), optimizer_names=("enc",)),
        TrainingPhaseSpec(
            "decoder",
            component_paths=("decoder",),
            optimizer_names=("dec",),
            frozen_component_paths=("encoder",),
            frequency=2,
        ),
    ),
)


# -- running them --------------------------------------------------------------------------------


class Interrupt(Exception):
    """Stands for the process being killed."""


class StopAfter(TrainerCallback):
    """Raises after an update, or inside the accumulation window that follows it."""

    def __init__(self, step: int, *, inside: bool = False) -> None:
        self.step = step
        self.inside = inside

    def on_step_end(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        if state.global_step == self.step and not self.inside:
            raise Interrupt

    def on_substep_end(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        if state.global_step == self.step and self.inside:
            raise Interrupt


RECIPES = ("plain", "gan", "hybrid")


def build(recipe: str, *, dropout: float = 0.0, **spec: Any) -> tuple[nn.Module, Any]:
    """A seeded model and its adapter (None for the plain module)."""
    if recipe == "plain":
        return seeded(Regressor, dropout), None
    if recipe == "gan":
        gan = seeded(Gan, dropout)
        return gan, GanAdapter(gan, gan_spec(**spec))
    hybrid = seeded(Hybrid, dropout)
    return hybrid, HybridAdapter(hybrid, HYBRID)


def arguments(directory: Path, **settings: Any) -> TrainingArguments:
    """Settings for a short run on the CPU."""
    defaults: dict[str, Any] = {
        "output_dir": str(directory),
        "use_cpu": True,
        "max_steps": 3,
        "save_strategy": "no",
        "logging_steps": 1,
        "lr_scheduler_type": "constant",
        "learning_rate": 0.05,
    }
    return TrainingArguments(**{**defaults, **settings})


def trainer_for(
    recipe: str,
    directory: Path,
    *,
    data: Any = None,
    options: Mapping[str, Any] | None = None,
    dropout: float = 0.0,
    spec: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Trainer:
    """A Trainer of one of ``RECIPES``, not yet run."""
    model, adapter = build(recipe, dropout=dropout, **(spec or {}))
    given: dict[str, Any] = {
        "data_collator": collate,
        "train_dataset": Frames(22) if data is None else data,
        "training_adapter": adapter,
    }
    return Trainer(
        model=model, args=arguments(directory, **settings), **{**given, **(options or {})}
    )


def weights(trainer: Trainer) -> dict[str, Tensor]:
    """A copy of all weights."""
    return {name: value.clone() for name, value in trainer.graph.adapter.state_dict().items()}


def relative_distance(one: Trainer, other: Trainer, start: Mapping[str, Tensor]) -> float:
    """||dw - dw'|| / ||dw|| over all weights."""

    def change(trainer: Trainer) -> Tensor:
        end = weights(trainer)
        return torch.cat([(end[name] - start[name]).double().flatten() for name in sorted(start)])

    first = change(one)
    if not float(first.norm()):
        raise AssertionError("nothing was trained")
    return float((first - change(other)).norm() / first.norm())


def same(first: Any, second: Any) -> bool:
    """Equality of nested state, tensors bit by bit."""
    if isinstance(first, Tensor):
        return torch.equal(first, second)
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[k], second[k]) for k in first)
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(same, first, second))
    return bool(np.array_equal(first, second))
