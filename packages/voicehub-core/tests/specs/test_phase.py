"""A phase that cannot be right is refused when it is declared."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicehub.specs.phase import PhaseKind, TrainingPhaseSpec


def test_defaults_are_those_that_users_know():
    phase = TrainingPhaseSpec("main")
    assert phase.label_names == ("labels", "targets", "target")
    assert phase.prediction_keys == ("logits", "predictions", "audio_values", "waveform")
    assert phase.loss_keys == ("loss", "total_loss")
    assert phase.forward_method == "forward"
    assert phase.forward_component is None
    assert (phase.frequency, phase.offset) == (1, 0)
    assert phase.kind is PhaseKind.OBJECTIVE
    assert not phase.optimizer_step_after_phase
    assert phase.fallback_objective is None


@given(frequency=st.integers(1, 50), data=st.data(), step=st.integers(0, 10_000))
def test_is_scheduled(frequency, data, step):
    offset = data.draw(st.integers(0, frequency - 1))
    phase = TrainingPhaseSpec("main", frequency=frequency, offset=offset)
    assert phase.is_scheduled(step) == (step % frequency == offset)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": ""}, "non-empty"),
        ({"name": " x"}, "spaces"),
        ({"frequency": 0}, "frequency"),
        ({"frequency": -1}, "frequency"),
        ({"frequency": 2, "offset": 2}, r"offset must lie in \[0, 2\)"),
        ({"offset": -1}, "offset"),
        ({"kind": "generater"}, "Did you mean 'generator'"),
        ({"kind": "generator"}, "needs optimizer_names"),
        ({"kind": "discriminator"}, "needs optimizer_names"),
        ({"kind": "duration-discriminator"}, "needs optimizer_names"),
        (
            {"optimizer_names": ("a", "b"), "component_paths": ("x", "y", "z")},
            "2 optimizer names for 3 component paths",
        ),
        ({"optimizer_names": ("a", "b")}, "one name that owns all"),
        ({"optimizer_step_after_phase": True}, "optimizer_step_after_phase=True needs"),
        ({"loss_keys": ("a",), "loss_weights": {"a": math.inf}}, "finite"),
        ({"loss_keys": ("a",), "loss_weights": {"a": math.nan}}, "finite"),
        ({"loss_keys": ("mel",), "loss_weights": {"mle": 1.0}}, "Did you mean 'mel'"),
        ({"loss_keys": ()}, "loss_keys"),
        ({"input_aliases": {"a": "x", "b": "x"}}, "both 'a' and 'b' to 'x'"),
        ({"fallback_objective": "cross_entrop"}, "Did you mean 'cross_entropy'"),
        ({"component_paths": ("x", "x")}, "twice"),
    ],
)
def test_invalid_values_are_value_errors(fields, message):
    with pytest.raises(ValueError, match=message):
        TrainingPhaseSpec(**{"name": "main", **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {"name": 3},
        {"component_paths": "model"},
        {"optimizer_names": "generator"},
        {"frequency": 1.5},
        {"frequency": True},
        {"loss_keys": ("a",), "loss_weights": {"a": "big"}},
        {"loss_keys": ("a",), "loss_weights": {"a": True}},
        {"input_aliases": ("ab",)},
        {"forward_component": 3},
    ],
)
def test_wrong_types_are_type_errors(fields):
    with pytest.raises(TypeError):
        TrainingPhaseSpec(**{"name": "main", **fields})


def test_mappings_and_pairs_mean_the_same():
    one = TrainingPhaseSpec("m", loss_keys=("a", "b"), loss_weights={"a": 2.0, "b": 0.5})
    two = TrainingPhaseSpec("m", loss_keys=("a", "b"), loss_weights=(("a", 2.0), ("b", 0.5)))
    assert one == two
    assert hash(one) == hash(two)
    assert one.weights == {"a": 2.0, "b": 0.5}


def test_two_components_may_share_one_optimizer_by_name():
    phase = TrainingPhaseSpec("m", component_paths=("a", "b"), optimizer_names=("x", "x"))
    assert phase.optimizer_names == ("x", "x")


def test_to_dict_is_strict_json():
    phase = TrainingPhaseSpec(
        "m",
        component_paths=("a",),
        optimizer_names=("x",),
        kind="generator",
        loss_keys=("mel",),
        loss_weights={"mel": 45},
        input_aliases={"audio": "x"},
        optimizer_step_after_phase=True,
    )
    record = json.loads(json.dumps(phase.to_dict(), allow_nan=False))
    assert record["kind"] == "generator"
    assert record["loss_weights"] == {"mel": 45}
    assert record["input_aliases"] == {"audio": "x"}
    assert TrainingPhaseSpec(**{**record, "component_paths": ("a",)}) == phase
