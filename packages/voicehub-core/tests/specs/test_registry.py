"""Specs come from this process first, then from plugins, one at a time."""

from __future__ import annotations

import sys

import pytest

from voicehub import get_training_spec, list_training_specs
from voicehub.errors import PluginError
from voicehub.specs.model import ModelTrainingSpec
from voicehub.specs.registry import (
    UnknownModelTypeError,
    known_model_types,
    register_training_spec,
    unregister_training_spec,
)
from voicehub.specs.support import TrainingSupport

GROUP = "voicehub.training_specs"
PLUGIN = """
from voicehub.specs.model import ModelTrainingSpec
SPEC = ModelTrainingSpec("{name}", "planted", support="{support}", aliases=({aliases}))
"""


def toy(name="toy", **fields):
    return ModelTrainingSpec(name, "toys", **fields)


def planted(plant, name, *, support="native", aliases="", entries=None):
    module = f"planted_spec_{name}"
    plant(
        f"planted-{name}",
        {GROUP: entries or {name: f"{module}:SPEC"}},
        modules={module: PLUGIN.format(name=name, support=support, aliases=aliases)},
    )
    return module


def test_registered_specs_are_found_by_name_and_alias():
    spec = register_training_spec(toy("mine-tts"), aliases=("m5",))
    assert get_training_spec("mine-tts") is spec
    assert get_training_spec("MINE-TTS ") is spec
    assert get_training_spec("m5") is spec
    register_training_spec(toy("my_model"))
    assert get_training_spec("my-model").model_type == "my_model"


def test_unknown_type_is_a_key_error_with_the_nearest_name():
    register_training_spec(toy("planted-vits"))
    with pytest.raises(KeyError) as caught:
        get_training_spec("planted-vit")
    assert "Did you mean 'planted-vits'?" in str(caught.value)
    assert not str(caught.value).startswith(("'", '"'))
    with pytest.raises(TypeError):
        get_training_spec(3)


def test_registering_twice_needs_consent():
    register_training_spec(toy())
    with pytest.raises(ValueError, match="exist_ok"):
        register_training_spec(toy())
    newer = register_training_spec(toy(summary="newer"), exist_ok=True)
    assert get_training_spec("toy") is newer
    with pytest.raises(TypeError):
        register_training_spec("toy")


def test_alias_collisions_are_refused():
    register_training_spec(toy("a"), aliases=("x",))
    with pytest.raises(ValueError, match="Alias 'a'"):
        register_training_spec(toy("b"), aliases=("a",))
    with pytest.raises(ValueError, match="Alias 'x'"):
        register_training_spec(toy("c"), aliases=("x",))
    with pytest.raises(ValueError, match="already registered"):
        register_training_spec(toy("x"))
    assert "b" not in known_model_types()


def test_unregistering_removes_aliases_too():
    register_training_spec(toy(), aliases=("x",))
    unregister_training_spec("x")
    for name in ("toy", "x"):
        with pytest.raises(UnknownModelTypeError):
            get_training_spec(name)
    with pytest.raises(KeyError, match="not registered"):
        unregister_training_spec("toy")


def test_a_plugin_spec_loads_its_module_alone(plant):
    mine = planted(plant, "mine")
    other = planted(plant, "other")
    assert "mine" in known_model_types()
    assert mine not in sys.modules
    assert get_training_spec("mine").family == "planted"
    assert other not in sys.modules


def test_an_alias_entry_resolves_where_the_spec_lists_it(plant):
    module = "planted_spec_long-name".replace("-", "_")
    plant(
        "planted-long",
        {GROUP: {"long": f"{module}:SPEC", "short": f"{module}:SPEC", "wrong": f"{module}:SPEC"}},
        modules={module: PLUGIN.format(name="long", support="native", aliases="'short',")},
    )
    assert get_training_spec("short") is get_training_spec("long")
    with pytest.raises(PluginError, match="holds the spec of 'long'"):
        get_training_spec("wrong")


def test_a_process_registration_wins_over_a_plugin(plant):
    planted(plant, "mine")
    with pytest.raises(ValueError, match="already registered"):
        register_training_spec(toy("mine"))
    spec = register_training_spec(toy("mine"), exist_ok=True)
    assert get_training_spec("mine") is spec
    assert [item for item in list_training_specs() if item.model_type == "mine"] == [spec]


def test_a_disabled_plugin_is_named(plant, monkeypatch):
    planted(plant, "mine")
    monkeypatch.setenv("VOICEHUB_DISABLE_PLUGINS", "planted-mine")
    with pytest.raises(PluginError, match="planted-mine is disabled by VOICEHUB_DISABLE_PLUGINS"):
        get_training_spec("mine")


def test_listing_filters_and_leaves_broken_ones_out_with_a_warning(plant):
    planted(plant, "mine")
    planted(plant, "closed", support="inference-only")
    plant(
        "planted-boom",
        {GROUP: {"boom": "planted_spec_boom:SPEC"}},
        modules={"planted_spec_boom": "raise RuntimeError('its reason')"},
    )
    register_training_spec(toy(task="automatic-speech-recognition"))
    with pytest.warns(RuntimeWarning, match="'boom'.*planted-boom.*its reason"):
        found = [spec.model_type for spec in list_training_specs()]
    assert {"mine", "closed", "toy"} <= set(found)
    assert found == sorted(found)
    with pytest.warns(RuntimeWarning):
        closed = list_training_specs(support="inference_only")
    names = {spec.model_type for spec in closed}  # installed families may have some, too
    assert "closed" in names and not names & {"mine", "toy"}
    assert all(spec.support is TrainingSupport.INFERENCE_ONLY for spec in closed)
    with pytest.warns(RuntimeWarning):
        speaking = {spec.model_type for spec in list_training_specs(task="text-to-speech")}
    assert {"mine", "closed"} <= speaking
    assert "toy" not in speaking


def test_a_plugin_value_that_is_no_spec_is_an_error(plant):
    plant(
        "planted-odd",
        {GROUP: {"odd": "planted_spec_odd:SPEC"}},
        modules={"planted_spec_odd": "SPEC = {}"},
    )
    with pytest.raises(PluginError, match="must be a ModelTrainingSpec, got dict"):
        get_training_spec("odd")
