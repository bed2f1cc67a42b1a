"""One stage goes on from the model of another, or says why it cannot."""

from __future__ import annotations

import pytest
import torch

from voicehub.adapters.auto import AutoTrainingAdapter
from voicehub.errors import CheckpointMismatchError
from voicehub.models.initial import read_initial_weights
from voicehub_asr_llm.model import AsrLlm
from voicehub_asr_llm.saving.parts import saved_names

TEXTS = ("hello", "Abc d")
TOP = {"freeze_encoder": False, "encoder__top_layers": 1}


@pytest.fixture
def stage(model_of, items_of, collate, descend, tmp_path):
    """Train a stage, from an earlier one if there is one; returns its cost and its artifact."""

    def run(name, before=None, **changes):
        model = model_of(load=False, **changes)
        if before is not None:
            model.start_from(read_initial_weights(before, model_type="asr-llm"))
        model.load_for_training().network.eval()
        batch = collate(model, items_of(model, *TEXTS))
        start = float(model.network.ask(batch)[0].total.detach())
        descend(model, batch, 2)
        end = float(model.network.ask(batch)[0].total.detach())
        model.save_pretrained(tmp_path / name)
        return start, end, tmp_path / name

    return run


def test_projector_then_adapters_then_the_encoder_too(stage, items_of, collate):
    _, first, a = stage("a", recipe="projector")
    start, second, b = stage("b", a, recipe="lora")
    assert start == pytest.approx(first, rel=1e-6)
    start, third, c = stage("c", b, recipe="lora", **TOP)
    assert start == pytest.approx(second, rel=1e-6)
    assert any(name.startswith("encoder.") for name in saved_names(c))
    # What an earlier stage has trained of a base stays in later artifacts.
    start, fourth, d = stage("d", c, recipe="lora")
    assert start == pytest.approx(third, rel=1e-6)
    assert saved_names(d) == saved_names(c)
    again = AsrLlm.from_pretrained(d)
    batch = collate(again, items_of(again, *TEXTS))
    assert float(again.network.eval().ask(batch)[0].total.detach()) == pytest.approx(fourth)


def test_adapters_fold_into_a_decoder_that_trains(stage):
    _, first, a = stage("a", recipe="lora")
    start, _, b = stage("b", a, recipe="full")
    assert start == pytest.approx(first, rel=1e-5)
    assert not (b / "adapter").exists()


def test_what_would_lose_weights_is_refused(stage):
    _, _, adapters = stage("a", recipe="lora")
    with pytest.raises(CheckpointMismatchError, match="would lose them: take recipe=lora"):
        stage("b", adapters, recipe="projector")
    _, _, full = stage("c", recipe="full")
    with pytest.raises(CheckpointMismatchError, match="voicehub asr-llm merge"):
        stage("d", full, recipe="lora")
    with pytest.raises(CheckpointMismatchError, match="does not fit"):
        stage("e", adapters, recipe="lora", decoder__lora={"rank": 3})


def test_another_base_than_the_stage_before_is_refused(stage, decoder):
    _, _, a = stage("a", recipe="projector")
    with pytest.raises(CheckpointMismatchError, match="decoder .* is another one"):
        stage("b", a, recipe="projector", decoder={"path": str(decoder("llama", seed=5))})


def test_ids_of_the_training_data_add_up(model_of, tmp_path):
    from voicehub_asr_llm.evaluating import SeenIds

    model = model_of(recipe="projector")
    model.seen = SeenIds.from_ids(["one", "two"])
    model.save_pretrained(tmp_path / "a")
    later = model_of(load=False, recipe="lora")
    later.seen = SeenIds.from_ids(["three"])
    later.start_from(read_initial_weights(tmp_path / "a", model_type="asr-llm"))
    later.load_for_training().save_pretrained(tmp_path / "b")
    found = AsrLlm.from_pretrained(tmp_path / "b").seen
    assert found.among(["one", "three", "four"]) == ["one", "three"]


def test_an_artifact_trains_on_as_it_is(stage, items_of, collate):
    _, _, a = stage("a", recipe="lora")
    model = AsrLlm.from_pretrained(a)
    adapter = AutoTrainingAdapter.from_model(model)
    adapter.setup()
    assert {n for named in adapter.routes.values() for n, _ in named} == saved_names(a)
    scale = model.network.projector.output_scale.clone()
    adapter.train_mode()
    assert torch.equal(model.network.projector.output_scale, scale)
