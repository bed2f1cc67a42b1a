"""State, resume configuration, manifests and portable artifacts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from voicehub.adapters.base import TrainingAdapter
from voicehub.adapters.plain import ModuleAdapter
from voicehub.models.artifact import read_artifact
from voicehub.models.lifecycle import PreTrainedTTSModel
from voicehub.specs import registry
from voicehub.specs.model import ModelTrainingSpec
from voicehub.specs.phase import TrainingPhaseSpec


class ToyTTS(PreTrainedTTSModel):
    """A wrapper around one linear layer that can be saved and loaded again."""

    default_model_type = "toy-tts"
    has_native_layout = True

    def _load_weights(self):
        self.model = nn.Linear(2, 1)
        file = Path(self.name_or_path) / "weights.safetensors"
        if file.exists():
            self.model.load_state_dict(load_file(file))

    def artifact_config(self):
        return {"size": 2}

    def _save_family_files(self, directory):
        from safetensors.torch import save_file

        save_file(self.model.state_dict(), directory / "weights.safetensors")

    def export_native(self, directory):
        if self.has_native_layout:
            (directory / "config.json").write_text('{"model_type": "theirs"}')
        return self.has_native_layout


class Averaging(TrainingAdapter):
    """Keeps a running average of the weight."""

    native_export_semantics = "inference-export"

    def __init__(self, model, spec):
        super().__init__(model, spec)
        self.average = {"weight": torch.zeros(1, 2), "steps": 0}

    def recipe_state_dict(self):
        return self.average

    def load_recipe_state_dict(self, state):
        assert self.is_ready
        self.average = dict(state)


class Other(Averaging):
    """The same recipe under another name."""


@pytest.fixture(autouse=True)
def toy_spec(monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(registry, "_aliases", {})
    return registry.register_training_spec(ModelTrainingSpec("toy-tts", "toys", support="native"))


def ready(cls, toy_spec, name="nowhere"):
    adapter = cls(ToyTTS(name), toy_spec)
    adapter.setup()
    return adapter


def test_state_round_trip(make_adapter, regressor_class):
    first = make_adapter({"model": regressor_class()})
    second = make_adapter({"model": regressor_class()})
    second.load_state_dict(first.state_dict())
    for name, tensor in first.state_dict().items():
        assert torch.equal(second.state_dict()[name], tensor)


def test_recipe_state_of_another_recipe_is_refused(make_adapter, regressor):
    adapter = make_adapter({"model": regressor})
    assert adapter.recipe_state_dict() == {}
    adapter.load_recipe_state_dict({})
    with pytest.raises(ValueError, match=r"recipe state \(ema\)"):
        adapter.load_recipe_state_dict({"ema": 1})


def test_resume_configuration_is_json_and_sees_what_changes_the_training(
    make_adapter, regressor_class
):
    def configuration(change=lambda model: None, **fields):
        model = regressor_class()
        change(model)
        phases = (TrainingPhaseSpec("main", **fields),)
        adapter = make_adapter({"model": model}, phases)
        return json.loads(json.dumps(adapter.resume_configuration(), allow_nan=False))

    base = configuration()
    assert configuration() == base

    def more_dropout(model):
        model.encoder[2].p = 0.1

    def other_batchnorm(model):
        model.encoder[1].momentum = 0.5

    def wider(model):
        model.head = nn.Linear(4, 2)

    def frozen(model):
        model.head.requires_grad_(False)

    for change in (more_dropout, other_batchnorm, wider, frozen):
        assert configuration(change) != base, change.__name__
    assert configuration(loss_keys=("loss",)) != base
    assert "Dropout(p=0.1, inplace=False)" in configuration(more_dropout)["modules"]


def test_resume_configuration_of_a_wrapper_holds_its_own(toy_spec):
    assert ready(Averaging, toy_spec).resume_configuration()["model"] == {"size": 2}


def test_identity_and_manifest(toy_spec):
    adapter = ready(Averaging, toy_spec)
    assert adapter.identity == {
        "class": f"{Averaging.__module__}.Averaging",
        "recipe_version": 1,
        "model_type": "toy-tts",
    }
    manifest = json.loads(json.dumps(adapter.artifact_manifest(), allow_nan=False))
    assert manifest["family"] == "toys"
    assert manifest["phases"][0]["name"] == "default"
    assert manifest["routes"]["default"]["parameters"] == 3


def test_the_portable_artifact_keeps_the_native_export_apart(toy_spec, tmp_path):
    adapter = ready(Averaging, toy_spec)
    adapter.save_pretrained(tmp_path / "out", native_export=True)
    artifact = read_artifact(tmp_path / "out")
    assert (artifact.model_type, artifact.family, artifact.model) == (
        "toy-tts",
        "toys",
        {"size": 2},
    )
    native = json.loads((tmp_path / "out/native_export/config.json").read_text())
    assert native == {"model_type": "theirs"}
    manifest = json.loads((tmp_path / "out/training_recipe.json").read_text())
    assert manifest["native_export_path"] == "native_export"
    assert manifest["native_export"] == "inference-export"


@pytest.mark.parametrize("asked", [True, False])
def test_without_a_native_export_the_manifest_says_so(toy_spec, tmp_path, asked):
    adapter = ready(Averaging, toy_spec)
    adapter.model.has_native_layout = not asked
    adapter.save_pretrained(tmp_path, native_export=asked)
    assert not (tmp_path / "native_export").exists()
    manifest = json.loads((tmp_path / "training_recipe.json").read_text())
    assert manifest["native_export_path"] is None
    assert manifest["native_export"] is None


def test_recipe_state_travels_with_the_artifact_to_its_own_recipe(toy_spec, tmp_path):
    adapter = ready(Averaging, toy_spec)
    adapter.average = {"weight": torch.ones(1, 2), "steps": 7}
    adapter.save_pretrained(tmp_path, native_export=False)
    again = ready(Averaging, toy_spec, tmp_path)
    assert again.average["steps"] == 7
    assert torch.equal(again.average["weight"], torch.ones(1, 2))
    assert torch.equal(again.model.model.weight, adapter.model.model.weight)
    with pytest.warns(RuntimeWarning, match="recipe state in .* was left out"):
        other = ready(Other, toy_spec, tmp_path)
    assert other.average["steps"] == 0


def test_a_plain_module_is_saved_as_safetensors(tmp_path):
    adapter = ModuleAdapter(nn.Linear(2, 1))
    adapter.setup()
    adapter.save_pretrained(tmp_path, native_export=True)
    saved = load_file(tmp_path / "model.safetensors")
    assert torch.equal(saved["weight"], adapter.model.weight)
    assert read_artifact(tmp_path).model_type == "Linear"
    assert not (tmp_path / "native_export").exists()


def test_gradient_checkpointing_is_turned_on_where_it_is_offered(make_adapter):
    class Block(nn.Linear):
        asked = None

        def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs=None):
            self.asked = gradient_checkpointing_kwargs

    class Older(nn.Linear):
        asked = False

        def gradient_checkpointing_enable(self):
            self.asked = True

    model = nn.Sequential(Block(1, 1), Older(1, 1), nn.Linear(1, 1))
    make_adapter({"model": model}).gradient_checkpointing_enable()
    assert model[0].asked == {"use_reentrant": False}
    assert model[1].asked is True


def test_gradient_checkpointing_that_nothing_offers_is_refused(make_adapter, regressor):
    with pytest.raises(ValueError, match="does not offer gradient checkpointing"):
        make_adapter({"model": regressor}).gradient_checkpointing_enable()

    def refuse():
        raise ValueError("not supported")

    regressor.gradient_checkpointing_enable = refuse
    with pytest.raises(ValueError, match="refuses gradient checkpointing"):
        make_adapter({"model": regressor}).gradient_checkpointing_enable()


def test_the_collator_of_a_spec_has_its_schemas(make_adapter, regressor):
    adapter = make_adapter({"model": regressor}, field_schemas={"mel": {"sequence_dim": 1}})
    collate = adapter.data_collator()
    batch = collate([{"mel": torch.zeros(3, 2)}, {"mel": torch.ones(3, 4)}])
    assert batch["mel"].shape == (2, 3, 4)
