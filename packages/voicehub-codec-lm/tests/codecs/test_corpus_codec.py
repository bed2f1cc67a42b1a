"""The codec that is fitted to a corpus."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from voicehub.errors import CheckpointError, ConfigurationError, DataError
from voicehub_codec_lm.codecs import CodecConfig, CorpusCodec, CorpusCodecConfig, load_codec
from voicehub_codec_lm.codecs.quantizer import (
    fit_codebook,
    fit_residual,
    nearest,
    quantize,
    reconstruct,
)
from voicehub_codec_lm.conformance import letters_of, tone_codec, tones


@settings(max_examples=20)
@given(st.integers(1, 4), st.integers(2, 8), st.integers(0, 50))
def test_more_codebooks_leave_less(books, size, seed):
    vectors = torch.randn(60, 5, generator=torch.Generator().manual_seed(seed))
    codebooks = fit_residual(vectors, books, size, iterations=5, seed=seed)
    errors = []
    for count in range(1, books + 1):
        codes = quantize(vectors, codebooks[:count])
        assert codes.shape == (count, 60) and int(codes.max()) < size
        back = reconstruct(codes, codebooks[:count])
        errors.append(float((vectors - back).square().sum()))
    assert errors == sorted(errors, reverse=True)


def test_quantising_what_codes_stand_for_gives_them_back():
    centres = torch.tensor([[[0.0, 0.0], [10.0, 0.0]], [[0.0, 1.0], [0.0, -1.0]]])
    codes = torch.tensor([[0, 1, 1], [1, 0, 1]])
    vectors = reconstruct(codes, centres)
    assert vectors.tolist() == [[0.0, -1.0], [10.0, 1.0], [10.0, -1.0]]
    assert torch.equal(quantize(vectors, centres), codes)


@pytest.mark.parametrize("seed", range(3))
def test_centres_are_the_means_of_what_is_nearest_to_them(seed):
    vectors = torch.randn(200, 2, generator=torch.Generator().manual_seed(seed))
    centres = fit_codebook(vectors, 6, 100, seed=seed)
    index = nearest(vectors, centres)
    assert len(index.unique()) == 6
    for number, centre in enumerate(centres):
        torch.testing.assert_close(vectors[index == number].mean(0), centre)


def test_no_centre_stays_without_a_vector():
    vectors = torch.tensor([[0.0], [0.0], [0.0], [9.0]])
    found = fit_codebook(vectors, 2, 10, seed=0)
    assert sorted(found.flatten().tolist()) == [0.0, 9.0]


def test_too_little_audio_is_refused():
    with pytest.raises(DataError, match="too few for a codebook of 256"):
        CorpusCodec.fit([torch.zeros(2000)], CorpusCodecConfig())
    with pytest.raises(DataError, match="no audio"):
        CorpusCodec.fit([], CorpusCodecConfig())


def test_the_round_trip_keeps_the_tones(codec):
    audio = torch.from_numpy(tones("a" * 40, 1))
    back = codec.decode(codec.encode(audio))
    assert abs(len(back) - len(audio)) <= codec.hop_length
    spectrum = torch.fft.rfft(back).abs()
    loudest = float(spectrum.argmax()) * codec.sample_rate / len(back)
    assert loudest == pytest.approx(200.0, rel=0.15)


def test_codes_have_the_shape_that_is_promised(codec):
    for samples in (1, 63, 64, 65, 1000):
        codes = codec.encode(torch.randn(samples) * 0.1)
        assert codes.shape == (2, 1 + samples // 64) and codes.dtype == torch.int64


def test_fitting_depends_on_its_seed_alone():
    assert tone_codec().identity() == tone_codec().identity()
    assert tone_codec().identity() != tone_codec(seed=1).identity()


def test_saved_and_loaded_it_is_the_same(codec, tmp_path):
    codec.save(tmp_path)
    again = load_codec(CodecConfig(path=str(tmp_path)))
    assert again.identity() == codec.identity()
    audio = torch.from_numpy(tones(letters_of(4, 3), 3))
    assert torch.equal(again.encode(audio), codec.encode(audio))
    codes = codec.encode(audio)
    assert torch.equal(again.decode(codes), codec.decode(codes))


def test_files_that_do_not_belong_together_are_refused(codec, tmp_path):
    codec.save(tmp_path)
    tone_codec(seed=1).save(tmp_path / "other")
    (tmp_path / "codec.safetensors").write_bytes(
        (tmp_path / "other" / "codec.safetensors").read_bytes()
    )
    with pytest.raises(CheckpointError, match="do not belong together"):
        CorpusCodec.load(tmp_path)
    (tmp_path / "codec.safetensors").write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match="cannot be read"):
        CorpusCodec.load(tmp_path)
    settings_file = tmp_path / "codec.json"
    settings_file.write_text(json.dumps({"format": "x"}))
    with pytest.raises(CheckpointError, match="cannot be read"):
        CorpusCodec.load(tmp_path)


def test_what_is_not_there_says_how_to_make_it(tmp_path):
    with pytest.raises(ConfigurationError, match="voicehub codec fit"):
        load_codec(CodecConfig(path=str(tmp_path / "nothing")))
    with pytest.raises(ConfigurationError, match="voicehub codec fit"):
        CorpusCodec.load(tmp_path)


def test_a_corpus_codec_is_used_whole(codec_directory):
    with pytest.raises(ConfigurationError, match="is used whole"):
        load_codec(CodecConfig(path=str(codec_directory), num_codebooks=1))


def test_codes_of_another_codec_are_refused(codec):
    with pytest.raises(ConfigurationError, match=r"codes of shape \(2, frames\)"):
        codec.decode(torch.zeros(3, 4, dtype=torch.long))
    with pytest.raises(ConfigurationError, match="codes from 0 to 7, got 0 to 8"):
        codec.decode(torch.tensor([[0, 8], [0, 0]]))
