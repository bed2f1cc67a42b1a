"""S1-S4: what a model type says about its training, and what is refused when."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from recipes import Wrapped, seeded
from torch import nn

from voicehub.adapters.auto import AutoTrainingAdapter
from voicehub.adapters.base import TrainingAdapter
from voicehub.errors import UnsupportedTrainingError
from voicehub.specs.model import ModelTrainingSpec
from voicehub.specs.support import TrainingSupport

ASK = """
import sys
from voicehub import get_training_spec, list_training_specs
from voicehub.training.specs import ModelTrainingSpec, register_training_spec
register_training_spec(ModelTrainingSpec("contract-s1", "contract", support="custom"))
spec = get_training_spec("contract-s1")
for one in (spec, *list_training_specs()):
    one.support, one.is_turnkey, one.supports_training, one.has_training_recipe
    one.family_name, [phase.name for phase in one.phases]
print(spec.family_name, [phase.name for phase in spec.phases], "torch" in sys.modules)
"""


def test_S1_specs_are_read_without_torch() -> None:
    result = subprocess.run(
        [sys.executable, "-c", ASK], capture_output=True, text=True, check=False
    )
    assert result.stdout.strip() == "contract ['default'] False", result.stderr


@pytest.mark.parametrize(
    ("support", "turnkey", "recipe"),
    [
        ("native", True, True),
        ("preprocessed", True, True),
        ("custom", False, True),
        ("inference-only", False, False),
    ],
)
def test_S2_what_each_level_promises(support: str, turnkey: bool, recipe: bool) -> None:
    spec = ModelTrainingSpec("contract-s2", "contract", support=support)
    assert spec.support is TrainingSupport(support)
    assert spec.is_turnkey is spec.supports_training is turnkey
    assert spec.has_training_recipe is recipe
    assert {level.value for level in TrainingSupport} >= {support}


class Guarded(Wrapped):
    """A wrapper of a given support level."""

    def __init__(self, support: str) -> None:
        super().__init__("nowhere")
        self.spec = ModelTrainingSpec(
            f"contract-{support}", "contract", support=support, module_paths=("model",)
        )

    @property
    def training_spec(self) -> ModelTrainingSpec:
        return self.spec


class Special(TrainingAdapter):
    """An adapter made for one model type."""


class TestS3:
    """Refusals come before any weight is loaded."""

    def test_S3_inference_only_is_refused_before_loading(self) -> None:
        model = Guarded("inference-only")
        with pytest.raises(UnsupportedTrainingError, match="inference-only"):
            AutoTrainingAdapter.from_model(model).setup()
        assert model.calls == [] and not model.is_loaded

    def test_S3_custom_without_a_specialised_adapter_is_refused_before_loading(self) -> None:
        model = Guarded("custom")
        with pytest.raises(ValueError, match="specialized training adapter"):
            AutoTrainingAdapter.from_model(model).setup()
        assert model.calls == [] and not model.is_loaded

    def test_S3_a_registered_adapter_lifts_it(self) -> None:
        model = Guarded("custom")
        AutoTrainingAdapter.register("contract-custom", Special)
        try:
            adapter = AutoTrainingAdapter.from_model(model)
            adapter.setup()
        finally:
            AutoTrainingAdapter.unregister("contract-custom")
        assert isinstance(adapter, Special) and model.loaded_for_training

    def test_S3_so_does_an_adapter_factory_of_the_spec(self) -> None:
        model = Guarded("custom")
        spec = ModelTrainingSpec(
            "contract-custom",
            "contract",
            support="custom",
            module_paths=("model",),
            adapter_factory="recipes:Remembering",
        )
        adapter = AutoTrainingAdapter.from_model(model, spec=spec)
        adapter.setup()
        assert type(adapter).__name__ == "Remembering" and adapter.is_ready


class TestS4:
    """The exact checkpoint is judged before weights, the loaded graph after."""

    @pytest.mark.parametrize(
        ("name", "options", "reason"),
        [
            ("voice.gguf", {}, "serving-only"),
            ("voice.onnx", {}, "serving-only"),
            ("voice-int8", {}, "quantization-aware"),
            ("voice", {"quantization_config": {"bits": 4}}, "full-precision"),
        ],
    )
    def test_S4_unfit_checkpoints_are_refused_before_weights(
        self, name: str, options: dict[str, Any], reason: str
    ) -> None:
        model = Wrapped(name, **options)
        with pytest.raises(UnsupportedTrainingError, match=reason):
            model.validate_training_support()
        with pytest.raises(UnsupportedTrainingError, match=reason):
            AutoTrainingAdapter.from_model(model).setup()
        assert model.calls == []

    def test_S4_the_spec_comes_back_for_a_fit_one(self, checkpoint_dir: Path) -> None:
        assert Wrapped(checkpoint_dir).validate_training_support().model_type == "contract-wrapped"

    def test_S4_the_loaded_graph_is_checked_again(self) -> None:
        class Quantized(nn.Linear):
            pass

        Quantized.__module__ = "bitsandbytes.nn"

        class Deceptive(Wrapped):
            def _load_weights(self) -> None:
                self.model = nn.Sequential(Quantized(2, 2))

        with pytest.raises(UnsupportedTrainingError, match=r"quantized training \(bitsandbytes"):
            AutoTrainingAdapter.from_model(Deceptive("plain-name")).setup()

    @pytest.mark.filterwarnings("ignore:.torch.jit.script")
    def test_S4_a_scripted_graph_is_refused(self) -> None:
        class Scripted(Wrapped):
            def _load_weights(self) -> None:
                self.model = torch.jit.script(seeded(nn.Linear, 2, 2))

        with pytest.raises(UnsupportedTrainingError, match="compiled/scripted"):
            AutoTrainingAdapter.from_model(Scripted("plain-name")).setup()
