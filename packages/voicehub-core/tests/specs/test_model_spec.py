"""The spec of a model type: levels, phases, coverage of the schedule, lazy references."""

from __future__ import annotations

import copy

import pytest

from voicehub.data.schema import TTSFieldSchema
from voicehub.specs.model import ModelTrainingSpec, TrainingRecipeKind
from voicehub.specs.phase import TrainingPhaseSpec
from voicehub.specs.support import TrainingSupport
from voicehub.specs.task import SpeechTask


def spec(**fields):
    return ModelTrainingSpec(**{"model_type": "toy", "family": "toys", **fields})


def phase(name, **fields):
    return TrainingPhaseSpec(name, **fields)


def gan(**fields):
    return (
        phase("d", component_paths=("d",), optimizer_names=("d",), kind="discriminator", **fields),
        phase("g", component_paths=("g",), optimizer_names=("g",), kind="generator", **fields),
    )


@pytest.mark.parametrize(
    ("support", "turnkey", "recipe", "custom"),
    [
        ("native", True, True, False),
        ("preprocessed", True, True, False),
        ("custom", False, True, True),
        ("inference-only", False, False, False),
    ],
)
def test_support_properties(support, turnkey, recipe, custom):
    made = spec(support=support)
    assert made.support is TrainingSupport(support)
    assert made.is_turnkey is turnkey
    assert made.supports_training is turnkey
    assert made.has_training_recipe is recipe
    assert made.requires_custom_adapter is custom


def test_a_spec_without_phases_has_one_made_of_its_fields():
    made = spec(
        label_names=("y",),
        loss_keys=("mel",),
        loss_weights={"mel": 2.0},
        prediction_keys=("p",),
        fallback_objective="regression_loss",
    )
    assert [item.name for item in made.phases] == ["default"]
    only = made.phases[0]
    assert only.label_names == ("y",)
    assert only.weights == {"mel": 2.0}
    assert only.prediction_keys == ("p",)
    assert only.fallback_objective == "regression_loss"
    assert made.get_phase() is only
    assert made.recipe_kind is TrainingRecipeKind.SINGLE_PHASE


def test_recipe_kind_follows_from_the_phases():
    assert spec(phases=(phase("a"), phase("b"))).recipe_kind is TrainingRecipeKind.MULTI_PHASE
    assert spec(phases=gan()).recipe_kind is TrainingRecipeKind.ADVERSARIAL


def test_default_phase_and_lookup():
    made = spec(phases=(phase("a"), phase("b")), default_phase="b")
    assert made.get_phase().name == "b"
    assert made.get_phase("a").name == "a"
    assert list(made.phase_map) == ["a", "b"]
    with pytest.raises(ValueError, match="Unknown training phase 'c'"):
        made.get_phase("c")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model_type": ""}, "non-empty"),
        ({"family": ""}, "non-empty"),
        ({"support": "nativ"}, "Unknown training support"),
        ({"task": "text-to-speach"}, "Did you mean 'text-to-speech'"),
        ({"phases": (phase("a"), phase("a"))}, "unique"),
        ({"phases": (phase("a"),), "default_phase": "b"}, "default_phase"),
        ({"regression_loss": "mae"}, "regression_loss"),
        ({"adapter_factory": "module.attribute"}, "module:attribute"),
        ({"experiment_factory": "a b:c"}, "module:attribute"),
        ({"config_class": "a:"}, "module:attribute"),
        ({"recipe_kind": "many"}, "recipe_kind"),
    ],
)
def test_invalid_values_are_value_errors(fields, message):
    with pytest.raises(ValueError, match=message):
        spec(**fields)


def test_wrong_types_are_type_errors():
    with pytest.raises(TypeError):
        spec(module_paths="model")
    with pytest.raises(TypeError):
        spec(phases=({"name": "a"},))
    with pytest.raises(TypeError):
        spec(adapter_factory=print)


def test_phases_must_cover_every_step_of_their_period():
    with pytest.raises(ValueError, match="cover every recipe step"):
        spec(phases=(phase("a", frequency=2),))
    with pytest.raises(ValueError, match="no phase is due at step 5 of each 6"):
        spec(
            phases=(
                phase("a", frequency=2, offset=0),
                phase("b", frequency=3, offset=0),
                phase("c", frequency=6, offset=1),
            )
        )
    made = spec(phases=(phase("a", frequency=2), phase("b", frequency=2, offset=1)))
    assert [[p.name for p in made.phases if p.is_scheduled(s)] for s in range(3)] == [
        ["a"],
        ["b"],
        ["a"],
    ]


def test_period_out_of_proportion_is_refused():
    with pytest.raises(ValueError, match="100000"):
        spec(phases=(phase("a"), phase("b", frequency=317), phase("c", frequency=331)))


def test_sequential_order_must_route_every_scheduled_phase():
    sequential, joint = gan(optimizer_step_after_phase=True), gan()
    assert spec(phases=sequential).phases[0].optimizer_step_after_phase
    with pytest.raises(ValueError, match="route every scheduled phase"):
        spec(phases=(sequential[0], joint[1]))
    # A phase that is never due beside the others may keep its own order.
    spec(
        phases=(
            phase("a", frequency=2, optimizer_names=("a",), optimizer_step_after_phase=True),
            phase("b", frequency=2, offset=1),
        )
    )


def test_accumulation_is_no_concern_of_the_spec():
    """The published system refused GAN order with accumulation; ours must declare it freely."""
    assert all(p.optimizer_step_after_phase for p in gan(optimizer_step_after_phase=True))


def test_field_schemas_may_be_mappings():
    made = spec(field_schemas={"model_inputs.mel": {"sequence_dim": 1, "length_field": "n"}})
    assert made.field_schemas["model_inputs.mel"] == TTSFieldSchema(
        sequence_dim=1, length_field="n"
    )
    with pytest.raises(ValueError, match="sequence_dimension"):
        spec(field_schemas={"mel": {"sequence_dimension": 1}})


def test_specs_are_values():
    assert spec() == spec()
    assert hash(spec()) == hash(spec(field_schemas={"a": {}}))
    assert copy.deepcopy(spec(phases=gan())) == spec(phases=gan())
    with pytest.raises(AttributeError):
        spec().model_type = "other"


def test_family_name_and_task():
    made = spec(task="automatic-speech-recognition")
    assert made.family_name == "toys"
    assert made.task is SpeechTask.AUTOMATIC_SPEECH_RECOGNITION
