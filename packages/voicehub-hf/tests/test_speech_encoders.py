"""Encoders without a head: loading, adapters, fewer layers."""

from __future__ import annotations

import pytest
import torch

from voicehub.errors import CheckpointMismatchError, ConfigurationError
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
