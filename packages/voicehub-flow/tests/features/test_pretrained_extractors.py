"""Extractors over tiny models of transformers, read from local directories."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from voicehub.errors import CheckpointError, ConfigurationError, DataError
from voicehub_flow.features.registry import build_extractor, store_extractor, stored_extractor
from voicehub_flow.vocoders.settings import VocoderSettings

transformers = pytest.importorskip("transformers")
HIDDEN = 8


@pytest.fixture(scope="module")
def codecs(tmp_path_factory):
    """Directories of a tiny EnCodec and a tiny DAC."""
    base = tmp_path_factory.mktemp("codecs")
    torch.manual_seed(0)
    encodec = transformers.EncodecConfig(
        sampling_rate=4000,
        num_filters=2,
        hidden_size=HIDDEN,
        codebook_size=8,
        codebook_dim=HIDDEN,
        upsampling_ratios=[4, 2],
        num_lstm_layers=1,
        target_bandwidths=[1.5],
    )
    transformers.EncodecModel(encodec).save_pretrained(base / "encodec")
    dac = transformers.DacConfig(
        encoder_hidden_size=4,
        downsampling_ratios=[2, 4],
        decoder_hidden_size=16,
        n_codebooks=2,
        codebook_size=8,
        codebook_dim=4,
        sampling_rate=4000,
    )
    transformers.DacModel(dac).save_pretrained(base / "dac")
    return base


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """Directory of a tiny CLIP: text, vision, and a tokenizer of letters."""
    directory = tmp_path_factory.mktemp("clip")
    torch.manual_seed(0)
    sizes = {"hidden_size": HIDDEN, "intermediate_size": 16, "num_attention_heads": 2}
    text = transformers.CLIPTextConfig(
        vocab_size=60, num_hidden_layers=1, max_position_embeddings=12, eos_token_id=1, **sizes
    )
    transformers.CLIPTextModel(text).save_pretrained(directory / "text")
    vision = transformers.CLIPVisionConfig(
        num_hidden_layers=1, image_size=8, patch_size=4, projection_dim=6, **sizes
    )
    transformers.CLIPVisionModelWithProjection(vision).save_pretrained(directory / "vision")
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["<|startoftext|>", "<|endoftext|>", *letters, *(f"{c}</w>" for c in letters)]
    vocabulary = {word: number for number, word in enumerate(words)}
    (directory / "vocab.json").write_text(json.dumps(vocabulary))
    (directory / "merges.txt").write_text("#version: 0.2\n")
    tokenizer = transformers.CLIPTokenizer(
        vocab=str(directory / "vocab.json"), merges=str(directory / "merges.txt")
    )
    tokenizer.save_pretrained(directory / "text")
    return directory


@pytest.mark.parametrize("name", ["encodec", "dac"])
def test_latents_of_codecs_are_their_encoders_and_decode_to_sound(codecs, name):
    found = build_extractor("audio", name, codecs / name, {})
    audio = torch.randn(403, generator=torch.Generator().manual_seed(0))
    mean, std = found.encode(audio)
    assert mean.shape == (found.frames(403), found.latent_dim) == (51, found.latent_dim)
    assert not std.any() and torch.isfinite(mean).all()
    padded = torch.nn.functional.pad(audio, (0, 5))
    with torch.no_grad():
        expected = found.model.encoder(padded[None, None])[0].T
    torch.testing.assert_close(mean, expected)
    wave = found.decode(mean, VocoderSettings())
    assert wave.ndim == 1 and abs(len(wave) - 408) <= 8 and wave.abs().max() <= 1
    assert not any(p.requires_grad for p in found.model.parameters())


def test_a_pretrained_extractor_stays_where_it_lies_and_other_weights_are_refused(codecs, tmp_path):
    found = build_extractor("audio", "encodec", codecs / "encodec", {})
    kept = store_extractor(found, tmp_path / "audio")
    assert not kept["saved"] and kept["place"] == str((codecs / "encodec").resolve())
    assert stored_extractor("audio", kept, tmp_path).identity() == found.identity()
    torch.manual_seed(9)
    other = transformers.EncodecModel(found.model.config)
    other.save_pretrained(tmp_path / "other")
    with pytest.raises(DataError, match="other weights"):
        stored_extractor("audio", {**kept, "place": str(tmp_path / "other")}, tmp_path)
    with pytest.raises(ConfigurationError, match="has no options, got layer"):
        build_extractor("audio", "encodec", codecs / "encodec", {"layer": 2})
    with pytest.raises(CheckpointError, match="cannot be read as DacModel"):
        build_extractor("audio", "dac", tmp_path, {})


def test_clip_text_gives_a_fixed_number_of_states(clip):
    found = build_extractor("text", "clip-text", clip / "text", {"tokens": 10})
    features = found.encode(["a dog", "", "abcdefghijklmnopqrstuvw"])
    assert features.shape == (3, 10, HIDDEN)
    assert features[1].any(), "the empty text of CLIP has states of its own"
    together = found.encode(["a dog", "a dog barks"])
    torch.testing.assert_close(together[0], features[0])


def test_other_encoders_are_zero_where_there_is_no_token(clip):
    found = build_extractor("text", "text-encoder", clip / "text", {"tokens": 10})
    features = found.encode(["ab"])[0]
    there = features.abs().sum(1).bool().tolist()
    assert there == [True] * sum(there) + [False] * (10 - sum(there))
    assert 2 <= sum(there) < 10


def test_clip_vision_gives_an_embedding_a_frame(clip):
    found = build_extractor("clip", "clip-vision", clip / "vision", {"fps": 4})
    frames = np.random.default_rng(0).integers(0, 255, (20, 12, 10, 3), dtype=np.uint8)
    features = found.encode(frames)
    assert features.shape == (20, 6) and found.fps == 4
    torch.testing.assert_close(found.encode(frames[3:4])[0], features[3], rtol=1e-4, atol=1e-5)
