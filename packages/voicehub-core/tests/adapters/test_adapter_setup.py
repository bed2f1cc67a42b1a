"""Set-up: refusals before anything loads, the order of loading, idempotence."""

from __future__ import annotations

import pytest

from voicehub.adapters.auto import AutoTrainingAdapter
from voicehub.adapters.base import TrainingAdapter
from voicehub.adapters.context import TrainingContext
from voicehub.specs.model import ModelTrainingSpec


class Specialised(TrainingAdapter):
    supports_custom_recipe = True


@pytest.fixture
def wrapper(make_adapter, regressor):
    return make_adapter({"model": regressor}, setup=False).model


def spec(support, **fields):
    return ModelTrainingSpec("toy", "toys", support=support, **fields)


def test_the_wrapper_is_checked_then_loaded_then_resolved(wrapper):
    adapter = TrainingAdapter(wrapper, spec("native"))
    assert wrapper.calls == []
    adapter.setup()
    assert wrapper.calls == ["validate", "load"]
    adapter.setup()
    assert wrapper.calls == ["validate", "load"]
    assert adapter.is_ready


def test_inference_only_is_refused_before_anything_loads(wrapper):
    with pytest.raises(ValueError, match="inference-only"):
        TrainingAdapter(wrapper, spec("inference-only")).setup()
    with pytest.raises(ValueError, match="inference-only"):
        Specialised(wrapper, spec("inference-only")).setup()
    assert wrapper.calls == []


def test_custom_needs_a_specialised_adapter(wrapper):
    with pytest.raises(ValueError, match="specialized training adapter"):
        TrainingAdapter(wrapper, spec("custom")).setup()
    assert wrapper.calls == []
    Specialised(wrapper, spec("custom")).setup()
    assert wrapper.calls == ["validate", "load"]


def test_custom_is_accepted_from_a_registration(wrapper):
    AutoTrainingAdapter.register("toy", TrainingAdapter)
    try:
        AutoTrainingAdapter.from_model(wrapper, spec=spec("custom")).setup()
    finally:
        AutoTrainingAdapter.unregister("toy")
    assert wrapper.calls == ["validate", "load"]


def test_custom_is_accepted_from_the_specs_own_factory(wrapper):
    declared = spec("custom", adapter_factory="voicehub.adapters.base:TrainingAdapter")
    AutoTrainingAdapter.from_model(wrapper, spec=declared).setup()
    assert wrapper.calls == ["validate", "load"]


def test_a_family_adapter_does_not_bypass_custom(wrapper):
    AutoTrainingAdapter.register_family("toys", TrainingAdapter)
    try:
        adapter = AutoTrainingAdapter.from_model(wrapper, spec=spec("custom"))
        with pytest.raises(ValueError, match="specialized training adapter"):
            adapter.setup()
    finally:
        AutoTrainingAdapter.unregister_family("toys")
    assert wrapper.calls == []


def test_a_refusal_of_the_checkpoint_loads_nothing(wrapper):
    def refuse():
        raise ValueError("serving-only format")

    wrapper.validate_training_support = refuse
    with pytest.raises(ValueError, match="serving-only"):
        TrainingAdapter(wrapper, spec("native")).setup()
    assert wrapper.calls == []


def test_running_before_set_up_says_so(wrapper):
    adapter = TrainingAdapter(wrapper, spec("native"))
    context = TrainingContext(adapter.phases[0], {})
    with pytest.raises(ValueError, match=r"setup\(\)"):
        adapter.execute_training_phase(context)
