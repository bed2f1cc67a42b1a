"""The objective on pretrained classes: padding, freezing, masks, low-rank adapters."""

from __future__ import annotations

import pytest
import torch

from voicehub.adapters.context import TrainingContext
from voicehub.errors import ConfigurationError

KINDS = {
    "wav2vec2": {},
    "wav2vec2-group": {"feat_extract_norm": "group", "do_stable_layer_norm": False},
    "wav2vec2-bert-adapter": {
        "add_adapter": True,
        "adapter_stride": 2,
        "num_adapter_layers": 1,
        "conformer_conv_dropout": 0.0,
        "final_dropout": 0.0,
    },
    "parakeet": {},
}


def kind_of(name):
    return name.removesuffix("-group").removesuffix("-adapter")


@pytest.fixture
def adapter_of(pretrained_run, trainer_of, checkpoint_of, tone_corpus):
    def make(name, **sections):
        checkpoint = checkpoint_of(kind_of(name), **KINDS[name])
        values = pretrained_run(checkpoint, tone_corpus(8), kind_of(name), **sections)
        torch.manual_seed(0)
        trainer = trainer_of(values)
        trainer.adapter.setup()
        return trainer.adapter, trainer.experiment

    return make


def loss_of(adapter, experiment, positions, *, training=True, step=0, keyed=False):
    from voicehub.data.keyed_random import SampleKey

    data = experiment.train_dataset
    items = [data.get_item(i, SampleKey(0, 0, i, i) if keyed else None) for i in positions]
    batch = experiment.data_collator(items)
    info = batch.pop("batch_info")
    context = TrainingContext(adapter.phases[0], batch, step, 0.0, training, info)
    run = adapter.execute_training_phase if training else adapter.execute_prediction_phase
    return run(context)


NO_DROPOUT = {"hidden_dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}


@pytest.mark.parametrize("name", sorted(KINDS))
def test_the_loss_of_a_batch_is_the_mean_of_its_utterances(adapter_of, name):
    adapter, experiment = adapter_of(name)
    adapter.eval_mode()
    positions = [0, 3, 5]
    alone = [float(loss_of(adapter, experiment, [i], training=False).loss) for i in positions]
    together = loss_of(adapter, experiment, positions, training=False)
    assert together.num_items == 3
    assert float(together.loss) == pytest.approx(sum(alone) / 3, rel=2e-5)


def test_padding_shows_where_exactness_was_not_asked_for(adapter_of):
    adapter, experiment = adapter_of("wav2vec2-group", model={"exact_padding": False})
    adapter.eval_mode()
    positions = [0, 3, 5]
    alone = [float(loss_of(adapter, experiment, [i], training=False).loss) for i in positions]
    together = float(loss_of(adapter, experiment, positions, training=False).loss)
    assert together != pytest.approx(sum(alone) / 3, rel=2e-5)


def test_batch_statistics_of_pretraining_are_kept(adapter_of):
    adapter, experiment = adapter_of("parakeet")
    adapter.train_mode()
    norms = [m for m in adapter.module.modules() if isinstance(m, torch.nn.BatchNorm1d)]
    before = [norm.running_mean.clone() for norm in norms]
    loss_of(adapter, experiment, [0, 1])
    assert norms and not any(norm.training for norm in norms)
    assert all(torch.equal(n.running_mean, b) for n, b in zip(norms, before, strict=True))
    free, _ = adapter_of("parakeet", model={"freeze_batch_norm": False})
    free.train_mode()
    assert any(m.training for m in free.module.modules() if isinstance(m, torch.nn.BatchNorm1d))


def test_the_encoder_is_held_for_the_first_steps(adapter_of):
    adapter, experiment = adapter_of("wav2vec2", model={"freeze_encoder_steps": 3})
    adapter.train_mode()
    encoder = adapter.model.encoder()
    head = adapter.module.lm_head.weight
    scheduled = [p for _, p in adapter.model.encoder_named_parameters()]
    routed = {id(p) for _, p in adapter.routes["default"]}
    assert scheduled and all(id(p) in routed for p in scheduled)
    for step in range(5):
        adapter.module.zero_grad()
        loss_of(adapter, experiment, [0, 1], step=step).loss.backward()
        held = step < 3
        assert head.grad is not None
        assert all((p.grad is None) is held for p in scheduled if p.requires_grad or held)
        assert encoder.encoder.training is not held
    assert not any(p.requires_grad for p in encoder.feature_extractor.parameters())


def test_a_resumed_run_past_the_first_steps_holds_nothing(adapter_of):
    adapter, experiment = adapter_of("wav2vec2", model={"freeze_encoder_steps": 3})
    adapter.train_mode()
    loss_of(adapter, experiment, [0], step=7).loss.backward()
    assert all(p.grad is not None for _, p in adapter.model.encoder_named_parameters())


@pytest.mark.parametrize("freeze", ["feature-encoder", "encoder", "none"])
def test_freezing(adapter_of, freeze):
    adapter, _ = adapter_of("wav2vec2", model={"freeze": freeze})
    adapter.train_mode()
    encoder = adapter.model.encoder()
    front = any(p.requires_grad for p in encoder.feature_extractor.parameters())
    rest = any(p.requires_grad for p in encoder.encoder.parameters())
    assert (front, rest) == {
        "feature-encoder": (False, True),
        "encoder": (False, False),
        "none": (True, True),
    }[freeze]
    assert encoder.encoder.training is rest


def test_low_rank_adapters_alone_train_with_the_head(adapter_of):
    adapter, experiment = adapter_of("wav2vec2", model={"lora": {"rank": 2}})
    adapter.train_mode()
    names = [name for name, _ in adapter.routes["default"]]
    assert names and all("lora_" in name or "lm_head" in name for name in names)
    loss_of(adapter, experiment, [0, 1]).loss.backward()


def test_adapters_that_match_nothing_are_an_error(adapter_of):
    with pytest.raises(ConfigurationError, match="match no module"):
        adapter_of("wav2vec2", model={"lora": {"target_modules": ["nothing"]}})


@pytest.mark.parametrize("name", ["wav2vec2", "wav2vec2-group", "wav2vec2-bert-adapter"])
def test_masks_change_the_loss_and_follow_the_key(adapter_of, name):
    masks = {"time_masks": 2, "time_mask_frames": 20, "time_mask_max_fraction": 0.5}
    settings = {"data": {"augment": {"spec_augment": masks}}}
    settings["model"] = {**NO_DROPOUT, "feat_proj_dropout": 0.0, "final_dropout": 0.0}
    adapter, experiment = adapter_of(name, **settings)
    adapter.train_mode()
    assert not adapter.model.model.config.apply_spec_augment
    plain = float(loss_of(adapter, experiment, [0, 1, 2]).loss)
    masked = [float(loss_of(adapter, experiment, [0, 1, 2], keyed=True).loss) for _ in range(2)]
    assert masked[0] == masked[1] != plain


def test_the_checkpoint_head_is_kept_with_its_tokenizer(adapter_of):
    kept, _ = adapter_of("wav2vec2", model={"tokenizer": {"kind": "checkpoint"}})
    fresh, _ = adapter_of("wav2vec2")
    assert kept.model.new_parameters == ()
    assert len(kept.model.tokenizer) == kept.module.lm_head.out_features == 30
    assert any("lm_head" in name for name in fresh.model.new_parameters)
    assert len(fresh.model.tokenizer) == fresh.module.lm_head.out_features == 7


def test_evaluation_rows_become_rates(adapter_of):
    adapter, experiment = adapter_of("wav2vec2")
    adapter.eval_mode()
    items = [experiment.train_dataset[i] for i in range(4)]
    batch = experiment.data_collator(items)
    info = batch.pop("batch_info")
    context = TrainingContext(adapter.phases[0], batch, None, None, False, info)
    rows = adapter.evaluation_rows(adapter.execute_prediction_phase(context), batch, info)
    assert [row.id for row in rows] == info["ids"]
    assert [row.reference for row in rows] == info["texts"]
    metrics = adapter.evaluation_metrics(rows)
    assert {"wer", "cer", "empty_share", "blank_share"} <= metrics.keys()


def test_a_frozen_encoder_takes_no_second_schedule():
    from pydantic import ValidationError

    from voicehub_asr_ctc.config import PretrainedModelConfig

    with pytest.raises(ValidationError, match="freeze_encoder_steps does nothing"):
        PretrainedModelConfig(path="x", freeze="encoder", freeze_encoder_steps=5)
