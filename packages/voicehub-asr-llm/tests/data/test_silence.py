"""Silent recordings with an empty transcript: drawn at their rate, and in the loss."""

from __future__ import annotations

import math

import pytest
import torch

from voicehub.data.keyed_random import SampleKey
from voicehub_asr_llm.config import AsrLlmRunConfig
from voicehub_asr_llm.experiment import build_experiment
from voicehub_asr_llm.testing import make_tiny_decoder
from voicehub_data.config import SilenceConfig
from voicehub_hf.testing_encoders import make_tiny_encoder_checkpoint

RATE = 0.3
IGNORED = -100


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bases")
    encoder = make_tiny_encoder_checkpoint(folder / "encoder", "granite_speech5_ctc")
    return {"encoder": str(encoder), "decoder": str(make_tiny_decoder(folder / "decoder"))}


@pytest.fixture
def experiment(bases, corpus):
    train = corpus("train", [{"text": text} for text in ("hello", "Go now", "ab", "yes") * 10])
    test = corpus("test", [{"text": ""}, {"text": "ok"}])
    config = AsrLlmRunConfig.model_validate(
        {
            "family": "asr-llm",
            "model_type": "asr-llm",
            "model": {
                "recipe": "projector",
                "encoder": {"path": bases["encoder"]},
                "decoder": {"path": bases["decoder"]},
                "projector": {"stride": 2, "hidden_size": 16},
            },
            "data": {
                "train": train,
                "eval": test,
                "silence": SilenceConfig(rate=RATE),
                "batches": {"batch_size": 5},
                "workers": 0,
            },
            "training": {"output_dir": "unused", "use_cpu": True},
        }
    )
    return build_experiment(config)


def draws(experiment, epochs):
    """Items of whole epochs, batch by batch."""
    dataset, plan = experiment.train_dataset, experiment.train_plan
    for epoch in range(epochs):
        draw = 0
        for batch in plan.batches(epoch):
            keys = [SampleKey(plan.seed, epoch, draw + n, i) for n, i in enumerate(batch)]
            draw += len(batch)
            yield [dataset.get_item(key.index, key) for key in keys]


def test_injected_items_reach_the_loss_with_an_empty_target(experiment):
    end = experiment.model.chat.end_id
    experiment.model.load_for_training()
    network = experiment.model.model
    silent = total = 0
    for items in draws(experiment, epochs=6):
        batch = experiment.data_collator(items)
        asked = batch["labels"][batch["labels"] != IGNORED].tolist()
        # Utterances share rows in an order of their own.
        assert sorted(asked) == sorted(token for item in items for token in item.labels)
        total += len(items)
        silent += sum(item.text == "" for item in items)
        assert all(item.labels == (end,) for item in items if item.text == "")
    sigma = math.sqrt(total * RATE * (1 - RATE))
    assert abs(silent - total * RATE) <= 3 * sigma

    items = next(items for items in draws(experiment, 1) if any(item.text == "" for item in items))
    alone = [item for item in items if item.text == ""][:1]
    found, _ = network.ask(experiment.data_collator(alone))
    assert int(found.count) == 1
    assert float(found.total.detach()) > 0
    found.total.backward()
    reached = [p.grad for p in network.parameters() if p.requires_grad]
    assert any(grad is not None and bool(torch.any(grad != 0)) for grad in reached)


def test_the_audio_is_not_the_recording_and_evaluation_has_none(experiment):
    dataset = experiment.train_dataset
    item = next(item for items in draws(experiment, 1) for item in items if item.text == "")
    spoken = dataset.get_item(item.key.index, None)
    assert spoken.text != ""
    assert spoken.prepared.rows.shape == item.prepared.rows.shape
    assert not torch.equal(spoken.prepared.rows, item.prepared.rows)
    evaluated = experiment.eval_datasets["eval"]
    texts = [evaluated.get_item(0, SampleKey(0, 0, n, 0)).text for n in range(20)]
    assert texts == [""] * 20  # an empty reference of the split itself: it is kept, too
    assert evaluated.get_item(1, SampleKey(0, 0, 1, 1)).text == "ok"


def test_silence_changes_what_a_run_resumes_from(experiment):
    dataset = experiment.train_dataset
    before = dataset.resume_fingerprint()
    dataset.silence = None
    assert dataset.resume_fingerprint() != before
