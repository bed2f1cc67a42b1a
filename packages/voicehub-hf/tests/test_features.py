"""Waveforms to model input: what plain transformers makes of one utterance, for each in a batch."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from voicehub.errors import ConfigurationError, DataError
from voicehub_hf.encoders import ctc_encoder, padding_sensitive
from voicehub_hf.features import (
    extract_features,
    extractor_settings,
    minimum_samples,
    pad_features,
    prepare_features,
    processor_sample_rate,
)
from voicehub_hf.lengths import output_lengths


def test_one_utterance_equals_the_processors_own_result(load, draw_waveforms, model_type):
    _, processor = load(model_type)
    (wave,) = draw_waveforms(8123)
    theirs = processor.feature_extractor(wave, sampling_rate=16000, return_tensors="pt")
    ours = prepare_features(processor, [wave], 16000)
    name = ctc_encoder(model_type).input_name
    valid = int(ours.lengths[0])
    assert torch.equal(ours.inputs[name], theirs[name][:, :valid])
    if name == "input_features":
        assert int(theirs["attention_mask"].sum()) == valid
        assert theirs[name].shape[1] - valid in (0, 1)


def test_an_utterance_does_not_depend_on_its_batch_mates(load, draw_waveforms, model_type):
    _, processor = load(model_type)
    waves = draw_waveforms(3000, 16000, 701)
    together = prepare_features(processor, waves, 16000)
    name = ctc_encoder(model_type).input_name
    for i, wave in enumerate(waves):
        alone = prepare_features(processor, [wave], 16000)
        length = int(alone.lengths[0])
        assert int(together.lengths[i]) == length
        assert torch.equal(together.inputs[name][i, :length], alone.inputs[name][0])
        assert not together.inputs[name][i, length:].any()


def test_waveforms_are_normalised_over_their_own_samples(load, draw_waveforms):
    _, processor = load("wav2vec2")
    waves = [wave * 3 + 0.5 for wave in draw_waveforms(2000, 9000)]
    prepared = prepare_features(processor, waves, 16000)
    for row, length in zip(prepared.inputs["input_values"], (2000, 9000), strict=True):
        assert row[:length].mean().item() == pytest.approx(0, abs=1e-5)
        assert row[:length].std().item() == pytest.approx(1, abs=1e-3)


def test_no_normalisation_where_the_processor_does_none(load, draw_waveforms):
    _, processor = load("wav2vec2")
    processor.feature_extractor.do_normalize = False
    (wave,) = draw_waveforms(2000)
    prepared = prepare_features(processor, [wave], 16000)
    assert np.array_equal(prepared.inputs["input_values"][0].numpy(), wave)


def test_the_attention_mask_follows_the_models_training(load, draw_waveforms):
    _, layered = load("wav2vec2")
    _, grouped = load("wav2vec2", feat_extract_norm="group", do_stable_layer_norm=False)
    waves = draw_waveforms(1000, 2000)
    mask = prepare_features(layered, waves, 16000).inputs["attention_mask"]
    assert mask.sum(1).tolist() == [1000, 2000]
    assert mask[0, :1000].all()
    assert "attention_mask" not in prepare_features(grouped, waves, 16000).inputs


VARIANTS = [
    ("wav2vec2", {}),
    ("hubert", {}),
    ("wavlm", {}),
    ("wav2vec2-bert", {}),
    ("parakeet_ctc", {}),
    ("wav2vec2", {"feat_extract_norm": "group", "do_stable_layer_norm": False}),
    ("hubert", {"feat_extract_norm": "group", "do_stable_layer_norm": False}),
    ("wavlm", {"feat_extract_norm": "group", "do_stable_layer_norm": False}),
    ("wav2vec2", {"add_adapter": True}),
    ("wav2vec2-bert", {"add_adapter": True}),
]


@pytest.mark.parametrize(("model_type", "overrides"), VARIANTS)
def test_padding_sensitive_says_whether_padding_changes_outputs(
    load, draw_waveforms, model_type, overrides
):
    """Measured: one utterance alone against the same one beside a longer one."""
    model, processor = load(model_type, **overrides)
    # 15 frames: an odd number, so that the last window of an adapter reaches into the padding.
    waves = draw_waveforms(5040, 16000, 9000)
    with torch.no_grad():
        batch = prepare_features(processor, waves, 16000)
        together = model(**batch.inputs).logits
        alone = model(**prepare_features(processor, waves[:1], 16000).inputs).logits[0]
    frames = int(output_lengths(model.config, batch.lengths)[0])
    assert len(alone) == frames
    apart = (together[0, :frames] - alone).abs().max().item()
    if padding_sensitive(model.config):
        assert apart > 1e-4
    else:
        assert apart < 2e-5


def test_rows_can_be_made_in_workers_and_padded_later(load, draw_waveforms, model_type):
    _, processor = load(model_type)
    waves = draw_waveforms(3000, 4321)
    rows = [extract_features(processor, wave, 16000) for wave in waves]
    later, at_once = pad_features(processor, rows), prepare_features(processor, waves, 16000)
    assert later.inputs.keys() == at_once.inputs.keys()
    for name, value in at_once.inputs.items():
        assert torch.equal(later.inputs[name], value)
    assert torch.equal(later.lengths, at_once.lengths)


def test_the_shortest_clip_works_and_a_shorter_one_is_refused(load, draw_waveforms, model_type):
    model, processor = load(model_type)
    least = minimum_samples(model.config, processor)
    prepared = prepare_features(processor, draw_waveforms(least), 16000)
    with torch.no_grad():
        assert torch.isfinite(model(**prepared.inputs).logits).all()
    if ctc_encoder(model_type).processor_kind == "log-mel":
        with pytest.raises(DataError, match=rf"waveform 1 .*{least - 1} samples.*least {least}"):
            prepare_features(processor, draw_waveforms(4000, least - 1), 16000)


def test_tensors_and_float64_are_accepted(load, draw_waveforms, model_type):
    _, processor = load(model_type)
    (wave,) = draw_waveforms(3000)
    name = ctc_encoder(model_type).input_name
    expected = prepare_features(processor, [wave], 16000).inputs[name]
    for same in (torch.from_numpy(wave), wave.astype(np.float64)):
        found = prepare_features(processor, [same], 16000).inputs[name]
        assert found.dtype == torch.float32
        assert torch.equal(found, expected)


def test_wrong_input_is_named(load, draw_waveforms, model_type):
    _, processor = load(model_type)
    assert processor_sample_rate(processor) == 16000
    with pytest.raises(DataError, match="8000 Hz.*16000 Hz"):
        prepare_features(processor, draw_waveforms(3000), 8000)
    with pytest.raises(DataError, match=r"waveform 0 .*\(2, 1500\)"):
        prepare_features(processor, [np.zeros((2, 1500), dtype=np.float32)], 16000)
    with pytest.raises(DataError, match="empty"):
        prepare_features(processor, [], 16000)
    processor.feature_extractor.padding_side = "left"
    with pytest.raises(ConfigurationError, match="left"):
        prepare_features(processor, draw_waveforms(3000), 16000)


def test_settings_of_an_extractor_leave_out_what_follows_from_them():
    from transformers import SeamlessM4TFeatureExtractor

    one = extractor_settings(SeamlessM4TFeatureExtractor(stride=2))
    assert one["stride"] == 2 and not {"mel_filters", "window", "processor_class"} & set(one)
    assert one != extractor_settings(SeamlessM4TFeatureExtractor(stride=1))
    assert json.loads(json.dumps(one)) == one
