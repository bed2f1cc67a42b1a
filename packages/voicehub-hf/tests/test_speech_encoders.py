"""Encoders without a head: loading, adapters, fewer layers."""

from __future__ import annotations

import pytest
import torch

from voicehub.errors import CheckpointMismatchError, ConfigurationError
from voicehub_hf.features import feature_lengths, minimum_samples
from voicehub_hf.lengths import minimum_input_length, output_lengths
from voicehub_hf.lora import add_lora, lora_parameter_count
from voicehub_hf.speech_encoders import (
    SPEECH_ENCODERS,
    load_speech_encoder,
    read_encoder_parts,
    speech_encoder,
)
from voicehub_hf.testing_encoders import make_tiny_encoder_checkpoint
from voicehub_hf.truncation import drop_top_layers, layer_savings, normalises_at_end


@pytest.fixture(scope="module")
def whisper(tmp_path_factory):
    return make_tiny_encoder_checkpoint(tmp_path_factory.mktemp("whisper"), "whisper")


def test_whisper_is_read_out_of_its_whole_checkpoint(whisper, tmp_path):
    from transformers import WhisperForConditionalGeneration

    whole = WhisperForConditionalGeneration.from_pretrained(whisper).model.encoder.eval()
    encoder = load_speech_encoder(whisper, model_type="whisper")
    features = torch.randn(1, 24, 200)
    with torch.no_grad():
        expected = whole(features).last_hidden_state
        assert torch.equal(encoder(features).last_hidden_state, expected)
        encoder.save_pretrained(tmp_path)
        again = load_speech_encoder(tmp_path, model_type="whisper")
        assert torch.equal(again(features).last_hidden_state, expected)
    assert not encoder.embed_positions.weight.requires_grad


def test_another_type_is_refused_by_name(whisper):
    with pytest.raises(ConfigurationError, match="'whisper', but 'wavlm' was asked for"):
        read_encoder_parts(whisper, model_type="wavlm")
    with pytest.raises(ConfigurationError, match="Did you mean 'hubert'"):
        speech_encoder("hubertt")


def test_missing_weights_are_named(whisper, tmp_path):
    from safetensors.torch import load_file, save_file

    for path in whisper.iterdir():
        if path.suffix == ".json":
            (tmp_path / path.name).write_bytes(path.read_bytes())
    state = load_file(whisper / "model.safetensors")
    state.pop("model.encoder.layers.1.fc1.bias")
    save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointMismatchError, match=r"lacks 1 weights.*layers\.1\.fc1\.bias"):
        load_speech_encoder(tmp_path, model_type="whisper")


def test_adapters_go_on_query_and_value_by_default(whisper):
    adapted = add_lora(load_speech_encoder(whisper, model_type="whisper"), rank=2)
    assert lora_parameter_count(adapted) == 2 * 2 * 2 * (24 + 24)
    assert {name.split(".")[-4] for name, p in adapted.named_parameters() if p.requires_grad} == {
        "q_proj", "v_proj",
    }  # fmt: skip


def test_layers_above_a_state_go_and_are_counted(whisper):
    entry = SPEECH_ENCODERS["whisper"]
    encoder = load_speech_encoder(whisper, model_type="whisper")
    assert normalises_at_end(encoder.config, entry)
    rows = layer_savings(encoder, entry)
    assert [row.layers_saved for row in rows] == [0, 1, 2]
    assert rows[0].share_saved == 0 and rows[1].share_saved < rows[2].share_saved
    assert drop_top_layers(encoder, entry, 2) == 0
    assert drop_top_layers(encoder, entry, 1) == 1
    assert encoder.config.encoder_layers == 1
    with pytest.raises(ConfigurationError, match="has 1 layers"):
        drop_top_layers(encoder, entry, 2)


@pytest.mark.parametrize("model_type", ["parakeet_ctc", "granite_speech5_ctc"])
def test_frames_of_log_mel_encoders_follow_the_formula(model_type, tmp_path):
    import numpy as np

    if model_type == "granite_speech5_ctc":
        pytest.importorskip("torchaudio", reason="its features are made by torchaudio")
    make_tiny_encoder_checkpoint(tmp_path, model_type)
    parts = read_encoder_parts(tmp_path, model_type=model_type)
    encoder = load_speech_encoder(tmp_path, model_type=model_type)
    shortest = minimum_samples(parts.config, parts.feature_extractor)
    noise = np.random.default_rng(0).standard_normal(12_000).astype(np.float32)
    for samples in (shortest, shortest + 1, shortest + 319, shortest + 320, 9_999, 12_000):
        features = parts.feature_extractor(
            noise[:samples], sampling_rate=16000, return_tensors="pt", return_attention_mask=True,
            padding=True,
        )  # fmt: skip
        valid = int(features["attention_mask"].sum())
        assert valid == feature_lengths(parts.feature_extractor, samples)
        rows = features["input_features"][:, :valid].float()
        with torch.no_grad():
            states = encoder(rows, torch.ones(1, valid, dtype=torch.long)).last_hidden_state
        assert states.isfinite().all()
        assert states.shape[1] == output_lengths(parts.config, valid) >= 1
        assert states.shape[1] == output_lengths(encoder.config, valid)
    assert output_lengths(parts.config, feature_lengths(parts.feature_extractor, shortest)) == 1
    assert minimum_input_length(parts.config, 3) == next(
        rows for rows in range(1, 99) if output_lengths(parts.config, rows) == 3
    )
