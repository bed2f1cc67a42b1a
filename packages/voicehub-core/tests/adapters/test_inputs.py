"""A batch becomes forward arguments, and is itself never changed."""

from __future__ import annotations

import pytest
import torch

from voicehub.adapters.inputs import (
    apply_aliases,
    check_required,
    detach_paths,
    flatten_model_inputs,
)
from voicehub.specs.phase import TrainingPhaseSpec


def test_model_inputs_are_lifted_and_the_phase_dropped():
    batch = {"a": 1, "model_inputs": {"b": 2}, "training_phase": "main"}
    assert flatten_model_inputs(batch) == {"a": 1, "b": 2}
    assert batch == {"a": 1, "model_inputs": {"b": 2}, "training_phase": "main"}


def test_duplicates_and_other_types_are_refused():
    with pytest.raises(ValueError, match="model_inputs duplicates top-level training keys: a, b"):
        flatten_model_inputs({"b": 1, "a": 1, "model_inputs": {"a": 2, "b": 3}})
    with pytest.raises(TypeError, match="mapping"):
        flatten_model_inputs({"model_inputs": [1]})


def test_required_inputs_are_named():
    phase = TrainingPhaseSpec("main", required_inputs=("mel", "text"))
    check_required({"mel": 1, "text": 2}, phase)
    with pytest.raises(ValueError, match=r"requires mel in the batch.*Did you mean 'mels'"):
        check_required({"mels": 1, "text": 2}, phase)


def test_aliases_rename_and_refuse_to_overwrite():
    phase = TrainingPhaseSpec("main", input_aliases={"audio": "input_values", "text": "labels"})
    assert apply_aliases({"audio": 1, "other": 2}, phase) == {"input_values": 1, "other": 2}
    with pytest.raises(ValueError, match="overwrite 'input_values'"):
        apply_aliases({"audio": 1, "input_values": 2}, phase)


def test_aliases_may_swap_names():
    phase = TrainingPhaseSpec("main", input_aliases={"a": "b", "b": "a"})
    assert apply_aliases({"a": 1, "b": 2}, phase) == {"a": 2, "b": 1}


def test_detach_works_along_paths_without_touching_the_batch():
    tensor = torch.ones(2, requires_grad=True) * 2
    batch = {"deep": {"mel": tensor, "other": tensor}, "flat": [tensor, "text"]}
    phase = TrainingPhaseSpec("main", detach_inputs=("deep.mel", "flat", "model_inputs.deep.mel"))
    detached = detach_paths(batch, phase)
    assert not detached["deep"]["mel"].requires_grad
    assert detached["deep"]["other"].requires_grad
    assert not detached["flat"][0].requires_grad
    assert batch["deep"]["mel"].requires_grad
    assert batch["flat"][0].requires_grad


@pytest.mark.parametrize("path", ["mell", "deep.mell", "mel.x"])
def test_a_detach_path_that_leads_nowhere_is_an_error(path):
    batch = {"mel": torch.ones(1), "deep": {"mel": torch.ones(1)}}
    with pytest.raises(ValueError, match="detach_inputs path"):
        detach_paths(batch, TrainingPhaseSpec("main", detach_inputs=(path,)))
