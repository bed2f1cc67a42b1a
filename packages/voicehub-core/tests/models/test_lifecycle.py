"""Wrappers are lazy, and load for training in the order of the contract."""

from __future__ import annotations

import json

import pytest

from voicehub.models.artifact import read_artifact
from voicehub.specs import registry
from voicehub.specs.model import ModelTrainingSpec


@pytest.fixture
def toy(toy_class):
    return toy_class.from_pretrained("org/toy", revision="abc", device="cpu", beam=3)


def test_a_lazy_wrapper_holds_no_weights(toy, toy_class, toy_spec):
    assert toy.calls == []
    assert not toy.is_loaded
    assert toy.model is None
    assert (toy.model_type, toy.name_or_path, toy.revision) == ("toy-asr", "org/toy", "abc")
    assert toy.options == {"beam": 3}
    assert toy.training_spec is toy_spec
    assert toy_class.from_pretrained("org/toy", lazy_load=False).is_loaded


def test_load_for_training_runs_in_order_and_once(toy):
    assert toy.load_for_training() is toy
    toy.load_for_training()
    toy.load()
    assert toy.calls == ["validate plain", "load training", "prepare plain"]
    assert toy.loaded_for_training


def test_an_ordinary_load_is_not_a_training_load(toy):
    assert toy.load() is toy
    toy.load()
    assert toy.calls == ["load plain"]
    assert toy.is_loaded
    assert not toy.loaded_for_training


def test_a_wrapper_loaded_for_inference_is_refused(toy):
    toy.load()
    with pytest.raises(ValueError, match=r"Build a fresh lazy wrapper.*lazy_load=True"):
        toy.load_for_training()
    assert toy.calls == ["load plain"]


def test_a_harmless_inference_load_may_be_followed_by_training(toy, monkeypatch):
    monkeypatch.setattr(type(toy), "destructive_inference_load", False)
    toy.load().load_for_training()
    assert toy.calls == ["load plain", "validate plain", "load training", "prepare plain"]


@pytest.mark.parametrize("step", ["validate", "load", "prepare"])
def test_a_failure_leaves_no_half_loaded_wrapper(toy, step):
    toy.fails = step
    with pytest.raises(RuntimeError, match=f"{step} failed"):
        toy.load_for_training()
    assert not toy.is_loaded
    assert not toy.is_training_load
    toy.fails = None
    assert toy.load_for_training().loaded_for_training


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("org/toy-gguf", {}, "serving-only"),
        ("org/toy-int8", {}, "quantization-aware"),
        ("org/toy", {"load_in_4bit": True}, "full-precision"),
    ],
)
def test_unsupported_checkpoints_load_nothing(toy_class, name, options, message):
    toy = toy_class(name, **options)
    for check in (toy.validate_training_support, toy.load_for_training):
        with pytest.raises(ValueError, match=message):
            check()
    assert toy.calls == []


def test_a_recipe_may_allow_quantised_weights(toy_class):
    toy = toy_class("org/toy-int8", load_in_8bit=True)
    assert toy.load_for_training(allow_quantized=True).loaded_for_training
    with pytest.raises(ValueError, match="serving-only"):
        toy_class("org/toy-gguf").load_for_training(allow_quantized=True)


def test_the_configuration_of_a_local_checkpoint_is_read(toy_class, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": {"bits": 4}}))
    with pytest.raises(ValueError, match="quantization_config"):
        toy_class(tmp_path).validate_training_support()


def test_validation_returns_the_spec_and_refuses_inference_only(toy_class, toy_spec):
    assert toy_class("org/toy").validate_training_support() is toy_spec
    registry.register_training_spec(
        ModelTrainingSpec("toy-asr", "toys", support="inference-only"), exist_ok=True
    )
    with pytest.raises(ValueError, match="inference-only"):
        toy_class("org/toy").validate_training_support()


def test_resolve_follows_paths_into_the_loaded_model(toy):
    with pytest.raises(AttributeError):
        toy.resolve("model.encoder")
    toy.load()
    assert toy.resolve("model.encoder.layer") == "weights"
    with pytest.raises(AttributeError, match="decoder"):
        toy.resolve("model.decoder")


def test_the_artifact_names_type_and_family(toy, tmp_path):
    toy.save_pretrained(tmp_path / "out")
    artifact = read_artifact(tmp_path / "out")
    assert (artifact.model_type, artifact.family) == ("toy-asr", "toys")
    assert artifact.model == {"size": 3}
    assert (tmp_path / "out" / "weights").exists()
    assert toy.export_native(tmp_path) is False


def test_a_type_is_required(toy_class, monkeypatch):
    monkeypatch.setattr(toy_class, "default_model_type", None)
    with pytest.raises(ValueError, match="model_type"):
        toy_class("org/toy")


def test_abstract_parts_must_be_written():
    from voicehub import PreTrainedSpeechModel

    with pytest.raises(TypeError, match="abstract"):
        PreTrainedSpeechModel("org/toy", model_type="toy-asr")
