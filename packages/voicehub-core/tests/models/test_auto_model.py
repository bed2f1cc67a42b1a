"""The wrapper of a checkpoint is found by type, by our artifact, or by its architecture."""

from __future__ import annotations

import json

import pytest

from voicehub import AutoModelForSpeechRecognition, AutoModelForTextToSpeech
from voicehub.errors import PluginError
from voicehub.models.auto import infer_model_type
from voicehub.specs import registry
from voicehub.specs.model import ModelTrainingSpec


def config(directory, **content):
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps(content))
    return directory


def test_a_named_type_needs_no_files(toy_class):
    model = AutoModelForSpeechRecognition.from_pretrained(
        "org/toy", model_type="toy-asr", device="meta", revision="r", beam=2
    )
    assert type(model) is toy_class
    assert model.calls == []
    assert (model.device, model.revision, model.options) == ("meta", "r", {"beam": 2})
    loaded = AutoModelForSpeechRecognition.from_pretrained(
        "org/toy", model_type="toy_asr", lazy_load=False
    )
    assert loaded.is_loaded


def test_the_type_of_our_artifact(toy_class, tmp_path):
    toy_class("org/toy").save_pretrained(tmp_path)
    model = AutoModelForSpeechRecognition.from_pretrained(tmp_path)
    assert model.model_type == "toy-asr"
    assert model.name_or_path == str(tmp_path)


def test_the_type_of_a_transformers_checkpoint(tmp_path):
    directory = config(tmp_path, architectures=["ToyForCTC"], model_type="their-own")
    assert infer_model_type(directory) == "toy-asr"
    assert AutoModelForSpeechRecognition.from_pretrained(str(directory)).model_type == "toy-asr"


def test_an_unknown_or_contested_architecture_names_the_known_types(tmp_path):
    with pytest.raises(ValueError, match=r"OddModel; no type matches.*toy-asr"):
        infer_model_type(config(tmp_path, architectures=["OddModel"]))
    with pytest.raises(ValueError, match="no architectures"):
        infer_model_type(config(tmp_path, hidden_size=3))
    registry.register_training_spec(
        ModelTrainingSpec("toy-two", "toys", architectures=("ToyForCTC",))
    )
    with pytest.raises(ValueError, match=r"several types match \(toy-asr, toy-two\)"):
        infer_model_type(config(tmp_path, architectures=["ToyForCTC"]))


@pytest.mark.parametrize("path", ["./missing", "/tmp/never/there", "a/b/c", "~/never-there-x"])
def test_a_missing_directory_says_so(path):
    with pytest.raises(ValueError, match="does not exist"):
        AutoModelForSpeechRecognition.from_pretrained(path, model_type="toy-asr")


def test_a_hub_id_needs_a_type():
    with pytest.raises(ValueError, match=r"is no local directory.*toy-asr"):
        AutoModelForSpeechRecognition.from_pretrained("org/toy")


def test_a_directory_without_or_with_broken_config_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"holds no config\.json"):
        AutoModelForSpeechRecognition.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config\.json cannot be read as JSON"):
        AutoModelForSpeechRecognition.from_pretrained(tmp_path)


def test_another_task_is_refused_with_the_right_class():
    with pytest.raises(ValueError, match="AutoModelForSpeechRecognition"):
        AutoModelForTextToSpeech.from_pretrained("org/toy", model_type="toy-asr")


def test_unknown_types_are_key_errors():
    with pytest.raises(KeyError, match="Did you mean 'toy-asr'"):
        AutoModelForSpeechRecognition.from_pretrained("org/toy", model_type="toy-asrr")


def test_a_class_from_a_plugin(plant):
    AutoModelForSpeechRecognition.unregister("toy-asr")
    source = """
    from voicehub.models.lifecycle import PreTrainedSpeechModel

    class Model(PreTrainedSpeechModel):
        def _load_weights(self): self.model = 1
        def artifact_config(self): return {}
        def _save_family_files(self, directory): pass

    NOT_A_MODEL = 3
    """
    plant(
        "planted-model",
        {"voicehub.models": {"toy-asr": "planted_model:Model"}},
        modules={"planted_model": source},
    )
    model = AutoModelForSpeechRecognition.from_pretrained("org/toy", model_type="toy-asr")
    assert type(model).__name__ == "Model"


def test_a_plugin_that_provides_no_model_class(plant):
    AutoModelForSpeechRecognition.unregister("toy-asr")
    with pytest.raises(PluginError, match="No installed plugin provides 'toy-asr'"):
        AutoModelForSpeechRecognition.from_pretrained("org/toy", model_type="toy-asr")
    plant(
        "planted-model",
        {"voicehub.models": {"toy-asr": "planted_nothing:VALUE"}},
        modules={"planted_nothing": "VALUE = 3"},
    )
    with pytest.raises(ValueError, match="must name a subclass of PreTrainedSpeechModel"):
        AutoModelForSpeechRecognition.from_pretrained("org/toy", model_type="toy-asr")


def test_registering_twice_needs_consent(toy_class):
    with pytest.raises(ValueError, match="exist_ok"):
        AutoModelForSpeechRecognition.register("toy-asr", toy_class)
    AutoModelForSpeechRecognition.register("toy-asr", toy_class, exist_ok=True)


def test_auto_classes_are_not_instantiated():
    with pytest.raises(OSError, match="from_pretrained"):
        AutoModelForTextToSpeech()
