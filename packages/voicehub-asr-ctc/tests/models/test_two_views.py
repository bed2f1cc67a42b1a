"""Label smoothing and consistency in training: two views of a batch, one in evaluation."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from voicehub.adapters.context import TrainingContext
from voicehub.data.keyed_random import SampleKey

MASKS = {"spec_augment": {"time_masks": 2, "time_mask_frames": 6, "time_mask_max_fraction": 0.5,
                          "frequency_masks": 1, "frequency_mask_bins": 6}}  # fmt: skip
ADDED = {"label_smoothing": 0.1, "consistency_weight": 0.2}


@pytest.fixture
def trainer_with(log_mel_run, pretrained_run, trainer_of, checkpoint_of, tone_corpus):
    def make(kind, *, augment=True, **model):
        corpus = tone_corpus(8)
        if kind == "logmel":
            values = log_mel_run(corpus, max_steps=2)
            values["model"] |= model
        else:
            values = pretrained_run(checkpoint_of(kind), corpus, kind, model=model)
        values["data"]["augment"] = MASKS if augment else {}
        torch.manual_seed(0)
        trainer = trainer_of(values)
        trainer.adapter.setup()
        return trainer

    return make


def batch_of(trainer, *, keyed=True):
    data = trainer.experiment.train_dataset
    keys = [SampleKey(0, 0, i, i) if keyed else None for i in range(3)]
    return trainer.experiment.data_collator([data.get_item(i, key) for i, key in enumerate(keys)])


def output_of(trainer, batch, *, training=True):
    adapter, batch = trainer.adapter, dict(batch)
    info = batch.pop("batch_info")
    context = TrainingContext(adapter.phases[0], batch, 0, 0.0, training, info)
    run = adapter.execute_training_phase if training else adapter.execute_prediction_phase
    return run(context)


@pytest.mark.parametrize("kind", ["logmel", "wav2vec2"])
def test_a_batch_holds_two_views_that_are_masked_apart(trainer_with, kind):
    trainer = trainer_with(kind, **ADDED)
    batch = batch_of(trainer)
    inputs = batch["features" if kind == "logmel" else "input_values"]
    assert batch["views"] == 2 and len(inputs) == len(batch["input_lengths"]) == 6
    assert len(batch["labels"]) == len(batch["frame_lengths"]) == 3
    seen = inputs if kind == "logmel" else batch["time_mask"]
    assert not torch.equal(seen[:3], seen[3:])
    assert torch.equal(inputs[:3], inputs[3:]) is (kind != "logmel")
    again = batch_of(trainer)
    assert torch.equal(seen, again["features" if kind == "logmel" else "time_mask"])
    assert "views" not in batch_of(trainer, keyed=False)
    name = "features" if kind == "logmel" else "time_mask"
    single = batch_of(trainer_with(kind))
    assert torch.equal(single[name], seen[:3]), "the first view is that of a run with one"


@pytest.mark.parametrize("kind", ["logmel", "wav2vec2"])
def test_training_adds_the_terms_and_evaluation_does_not(trainer_with, kind):
    dropout = {} if kind == "logmel" else {"hidden_dropout": 0.0, "attention_dropout": 0.0,
                                           "activation_dropout": 0.0, "feat_proj_dropout": 0.0,
                                           "final_dropout": 0.0}  # fmt: skip
    trainer = trainer_with(kind, **ADDED, **dropout)
    trainer.adapter.train_mode()
    output = output_of(trainer, batch_of(trainer))
    terms = output.losses
    assert output.num_items == 3 and set(terms) == {"loss", "ctc", "smoothing", "consistency"}
    assert float(terms["consistency"]) > 0
    wanted = 0.9 * terms["ctc"] + 0.1 * terms["smoothing"] + 0.2 * terms["consistency"]
    assert output.loss.item() == pytest.approx(float(wanted), rel=1e-6)
    output.loss.backward()
    trainer.adapter.eval_mode()
    plain = trainer_with(kind, **dropout)
    plain.adapter.module.load_state_dict(trainer.adapter.module.state_dict())
    plain.adapter.eval_mode()
    losses = [
        float(output_of(one, batch_of(one, keyed=False), training=False).loss)
        for one in (trainer, plain)
    ]
    assert losses[0] == losses[1]


def test_a_run_learns_from_two_views(trainer_with):
    trainer = trainer_with("logmel", **ADDED, intermediate_weight=0.3)
    result = trainer.train()
    assert result.global_step == 2


def test_fingerprints_tell_runs_with_a_second_view_apart(trainer_with):
    plain, both = (trainer_with("logmel", **model).experiment for model in ({}, ADDED))
    for name in ("train_dataset", "data_collator"):
        one, other = (getattr(e, name).resume_fingerprint() for e in (plain, both))
        assert one != other


def test_two_views_need_masks(trainer_with):
    with pytest.raises(ValidationError, match="set data.augment.spec_augment"):
        trainer_with("logmel", augment=False, consistency_weight=0.2)
    trainer_with("logmel", augment=False, label_smoothing=0.1)
