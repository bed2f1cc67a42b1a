"""L1-L3: how a model comes to be loaded for training."""

from __future__ import annotations

from pathlib import Path

import pytest
from recipes import Wrapped

from voicehub.adapters.auto import AutoTrainingAdapter
from voicehub.errors import UnsupportedTrainingError
from voicehub.models.auto import AutoModelForTextToSpeech


def test_L1_a_lazy_wrapper_holds_no_weights(wrapped_type: str, checkpoint_dir: Path) -> None:
    model = AutoModelForTextToSpeech.from_pretrained(
        str(checkpoint_dir), model_type=wrapped_type, device="cpu", lazy_load=True
    )
    assert isinstance(model, Wrapped)
    assert model.model is None and not model.is_loaded and model.calls == []
    eager = AutoModelForTextToSpeech.from_pretrained(
        str(checkpoint_dir), model_type=wrapped_type, lazy_load=False
    )
    assert eager.is_loaded and eager.calls == ["load"]


def test_L2_the_order_of_loading_for_training(checkpoint_dir: Path) -> None:
    model = Wrapped(checkpoint_dir)
    AutoTrainingAdapter.from_model(model).setup()
    assert model.calls[:4] == ["validate", "load for training", "prepare", "resolve model"]
    assert model.loaded_for_training and not model.is_training_load


def test_L2_a_refused_runtime_loads_nothing(checkpoint_dir: Path) -> None:
    class Refusing(Wrapped):
        def _validate_training_runtime(self) -> None:
            super()._validate_training_runtime()
            raise UnsupportedTrainingError("fused runtime")

    model = Refusing(checkpoint_dir)
    with pytest.raises(UnsupportedTrainingError, match="fused runtime"):
        model.load_for_training()
    assert model.calls == ["validate"] and model.model is None


def test_L2_the_flag_falls_also_when_loading_fails(checkpoint_dir: Path) -> None:
    class Broken(Wrapped):
        def _load_weights(self) -> None:
            raise OSError("no such file")

    model = Broken(checkpoint_dir)
    with pytest.raises(OSError, match="no such file"):
        model.load_for_training()
    assert not model.is_training_load and not model.is_loaded


def test_L3_a_wrapper_loaded_for_inference_is_refused(checkpoint_dir: Path) -> None:
    model = Wrapped(checkpoint_dir)
    model.load()
    with pytest.raises(UnsupportedTrainingError, match=r"fresh lazy wrapper.*from_pretrained"):
        AutoTrainingAdapter.from_model(model).setup()
