"""Which adapter a model gets, and that nothing else is imported on the way."""

from __future__ import annotations

import sys

import pytest
from torch import nn

from voicehub.adapters.auto import AutoTrainingAdapter
from voicehub.adapters.base import TrainingAdapter
from voicehub.adapters.plain import ModuleAdapter
from voicehub.errors import PluginError
from voicehub.specs.model import ModelTrainingSpec

GROUP = "voicehub.adapter_factory"
SOURCE = """
from voicehub.adapters.base import TrainingAdapter

class {name}(TrainingAdapter):
    pass

def create(model, spec):
    return {name}(model, spec)
"""


class Mine(TrainingAdapter):
    pass


class Model:
    def __init__(self, **fields):
        self.training_spec = ModelTrainingSpec("toy", "toys", support="native", **fields)


@pytest.fixture(autouse=True)
def clean():
    yield
    for name in AutoTrainingAdapter.available_models():
        AutoTrainingAdapter.unregister(name)
    for name in AutoTrainingAdapter.available_families():
        AutoTrainingAdapter.unregister_family(name)


def put(plant, entry, cls):
    module = f"planted_adapter_{cls.lower()}"
    plant(
        f"planted-{cls.lower()}",
        {GROUP: {entry: f"{module}:create"}},
        modules={module: SOURCE.format(name=cls)},
    )
    return f"{module}:create"


def kind(model):
    return type(AutoTrainingAdapter.from_model(model)).__name__


def test_precedence(plant):
    assert kind(Model()) == "TrainingAdapter"
    put(plant, "toys", "ByFamilyEntry")
    assert kind(Model()) == "ByFamilyEntry"
    put(plant, "toy", "ByTypeEntry")
    assert kind(Model()) == "ByTypeEntry"

    class FamilyOverride(TrainingAdapter):
        pass

    AutoTrainingAdapter.register_family("toys", FamilyOverride)
    assert kind(Model()) == "FamilyOverride"
    reference = put(plant, "unused", "BySpec")
    assert kind(Model(adapter_factory=reference)) == "BySpec"
    AutoTrainingAdapter.register("toy", Mine)
    assert kind(Model(adapter_factory=reference)) == "Mine"
    AutoTrainingAdapter.unregister("toy")
    assert kind(Model(adapter_factory=reference)) == "BySpec"


def test_other_families_are_not_imported(plant):
    plant(
        "planted-boom",
        {GROUP: {"others": "planted_adapter_boom:create"}},
        modules={"planted_adapter_boom": "raise RuntimeError('no')"},
    )
    put(plant, "toys", "ByFamilyEntry")
    assert kind(Model()) == "ByFamilyEntry"
    assert "planted_adapter_boom" not in sys.modules


def test_a_broken_factory_is_named():
    with pytest.raises(ImportError, match="Could not resolve training adapter factory of 'toy'"):
        AutoTrainingAdapter.from_model(Model(adapter_factory="no_such_module_here:create"))
    with pytest.raises(PluginError, match="must be callable"):
        AutoTrainingAdapter.from_model(Model(adapter_factory="voicehub.plugins.groups:MODELS"))
    AutoTrainingAdapter.register("toy", lambda model, spec: 3)
    with pytest.raises(PluginError, match="returned a int"):
        AutoTrainingAdapter.from_model(Model())


def test_plain_modules_and_other_objects():
    assert isinstance(AutoTrainingAdapter.from_model(nn.Linear(1, 1)), ModuleAdapter)
    with pytest.raises(ValueError, match="Cannot train a str"):
        AutoTrainingAdapter.from_model("model")


def test_an_explicit_spec_is_used():
    spec = ModelTrainingSpec("special", "toys", support="native")
    assert AutoTrainingAdapter.from_model(Model(), spec=spec).spec is spec


def test_registration_twice_needs_consent_and_removal_needs_presence():
    AutoTrainingAdapter.register("toy", Mine)
    with pytest.raises(ValueError, match="exist_ok"):
        AutoTrainingAdapter.register("toy", Mine)
    AutoTrainingAdapter.register("toy", Mine, exist_ok=True)
    AutoTrainingAdapter.register_family("toys", Mine)
    assert AutoTrainingAdapter.available_models() == ("toy",)
    assert AutoTrainingAdapter.available_families() == ("toys",)
    with pytest.raises(TypeError):
        AutoTrainingAdapter.register("other", "not callable")
    with pytest.raises(ValueError, match="no registered training adapter"):
        AutoTrainingAdapter.unregister("never")


def test_it_is_not_instantiated():
    with pytest.raises(OSError, match="from_model"):
        AutoTrainingAdapter()
