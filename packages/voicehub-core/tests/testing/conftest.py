"""A small family that holds every check, with places where a test breaks it."""

from __future__ import annotations

import wave
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from voicehub.adapters.base import TrainingAdapter
from voicehub.data.keyed_random import numpy_generator, torch_generator
from voicehub.errors import DataError
from voicehub.models.lifecycle import PreTrainedSpeechModel
from voicehub.specs.model import ModelTrainingSpec
from voicehub.specs.registry import register_training_spec, unregister_training_spec
from voicehub.testing import ConformanceCase, outcomes

SPEC = ModelTrainingSpec(
    model_type="toy-frames",
    family="toy-conformance",
    support="native",
    module_paths=("model",),
    label_names=("y",),
    field_schemas={"x": {"mask_field": "mask"}, "y": {}},
)


class FrameModel(nn.Module):
    """A frozen projection with batch norm, a convolution and an output; one number a frame."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).requires_grad_(False)
        self.convolution = nn.Conv1d(4, 6, 3, padding=1)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(6, 1)

    def forward(self, x: Tensor, mask: Tensor, y: Tensor | None = None) -> dict[str, Any]:
        """x (B, T, 3), mask (B, T), y (B, T)."""
        hidden = self.encode(x, mask)
        hidden = self.convolution(hidden.transpose(1, 2)).transpose(1, 2)
        logits = self.output(self.dropout(torch.tanh(hidden))).squeeze(-1)
        return {"logits": logits, **({} if y is None else self.loss(logits, y, mask))}

    def encode(self, x: Tensor, mask: Tensor) -> Tensor:
        flat = self.encoder(x.masked_fill(~mask[..., None], 0.0).flatten(0, 1))
        return flat.view(*x.shape[:2], 4).masked_fill(~mask[..., None], 0.0)

    def loss(self, logits: Tensor, y: Tensor, mask: Tensor) -> dict[str, Any]:
        frames = mask.sum()
        errors = (logits - y).masked_fill(~mask, 0.0).square()
        return {"loss": errors.sum() / frames, "num_items": frames}


class FrameWrapper(PreTrainedSpeechModel):
    default_model_type = SPEC.model_type
    destructive_inference_load = False
    network: ClassVar[type[FrameModel]] = FrameModel

    def _load_weights(self) -> None:
        self.model = self.network(self.options.get("dropout", 0.0))
        weights = Path(self.name_or_path) / "model.safetensors"
        if weights.is_file():
            self.model.load_state_dict(load_file(weights))

    def artifact_config(self) -> dict[str, Any]:
        return {}

    def _save_family_files(self, directory: Path) -> None:
        save_file(self.model.state_dict(), directory / "model.safetensors")


class KeyedNoise:
    def __init__(self, items: Sequence[dict[str, Tensor]]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def get_item(self, index: int, key: Any) -> dict[str, Tensor]:
        item = self.items[index]
        noise = torch.randn(item["x"].shape, generator=torch_generator(*key))
        return {**item, "x": item["x"] + 0.1 * noise}


class FrameCase(ConformanceCase):
    model_type = SPEC.model_type
    lengths = (3, 12)
    sample_rate = 8000
    wrapper: ClassVar[type[FrameWrapper]] = FrameWrapper
    adapter: ClassVar[type[TrainingAdapter]] = TrainingAdapter

    def build(self, *, dropout: float = 0.0) -> TrainingAdapter:
        return self.adapter(self.wrapper("tiny", dropout=dropout), SPEC)

    def item(self, length: int, seed: int) -> dict[str, Tensor]:
        x = torch.from_numpy(numpy_generator("toy", seed).standard_normal((length, 3))).float()
        return {"x": x, "y": torch.tanh(x[:, 0] - x[:, 1])}

    def shuffled(self, items: Sequence[Any], seed: int) -> list[Any]:
        return [{**item, "y": item["y"].flip(0).roll(1)} for item in items]

    def dataset(self, size: int, seed: int) -> KeyedNoise:
        return KeyedNoise([self.item(3 + i % 4, seed + i) for i in range(size)])

    def reload(self, directory: Path) -> TrainingAdapter:
        return self.adapter(self.wrapper(directory), SPEC)

    def output_lengths(self, adapter: Any, inputs: Any) -> Tensor:
        return inputs["mask"].sum(1)

    def read_audio(self, path: Path) -> np.ndarray[Any, Any]:
        with wave.open(str(path)) as file:
            if file.getframerate() != 8000:
                raise DataError(f"{path.name} has {file.getframerate()} Hz, expected 8000 Hz.")
            return np.frombuffer(file.readframes(file.getnframes()), np.int16)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """The classes above, with the spec registered; outcomes stay out of this run's own report."""
    monkeypatch.setattr(outcomes, "_outcomes", {})
    register_training_spec(SPEC)
    yield SimpleNamespace(
        SPEC=SPEC, Case=FrameCase, Model=FrameModel, Wrapper=FrameWrapper, Noise=KeyedNoise
    )
    unregister_training_spec(SPEC.model_type)


@pytest.fixture
def with_network(toy: SimpleNamespace) -> Any:
    """Return the case of a changed network."""

    def make(network: type[FrameModel], **declarations: Any) -> ConformanceCase:
        wrapper = type("Wrapper", (FrameWrapper,), {"network": network})
        return type("Case", (FrameCase,), {"wrapper": wrapper, **declarations})()

    return make


@pytest.fixture
def with_adapter(toy: SimpleNamespace) -> Any:
    """Return the case of a changed adapter."""

    def make(**methods: Any) -> ConformanceCase:
        adapter = type("Adapter", (TrainingAdapter,), methods)
        return type("Case", (FrameCase,), {"adapter": adapter})()

    return make
