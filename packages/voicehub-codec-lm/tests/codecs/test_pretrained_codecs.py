"""EnCodec, DAC, Mimi and X-Codec 2 of transformers, from tiny random directories."""

from __future__ import annotations

import shutil

import pytest
import torch

from voicehub.errors import CheckpointError, ConfigurationError
from voicehub_codec_lm import testing_codecs
from voicehub_codec_lm.codecs import CodecConfig, load_codec

KINDS = {"encodec": (4, 16), "dac": (3, 16), "mimi": (4, 16), "xcodec2": (1, 64)}


@pytest.fixture(scope="module", params=sorted(KINDS))
def directory(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param) / request.param
    return getattr(testing_codecs, request.param)(folder)


def load(directory, **settings):
    return load_codec(CodecConfig(path=str(directory), **settings))


def noise(samples, seed=0):
    return torch.randn(samples, generator=torch.Generator().manual_seed(seed)) * 0.1


def test_codes_and_back(directory):
    codec = load(directory)
    books, size = KINDS[directory.name]
    assert (codec.kind, codec.num_codebooks, codec.codebook_size) == (directory.name, books, size)
    audio = noise(codec.hop_length * 20 + 5)
    codes = codec.encode(audio)
    assert codes.shape == (books, 21) and codes.dtype == torch.int64
    assert int(codes.min()) >= 0 and int(codes.max()) < size
    # A random X-Codec 2 hears all frames alike.
    assert len(codes.unique()) > 1 or codec.kind == "xcodec2"
    back = codec.decode(codes)
    assert back.shape == (21 * codec.hop_length,) and back.dtype == torch.float32
    assert torch.equal(codec.encode(audio), codes)


def test_it_is_frozen(directory):
    codec = load(directory)
    assert not codec.model.training
    assert not any(p.requires_grad for p in codec.model.parameters())
    assert not codec.decode(codec.encode(noise(2000))).requires_grad


def test_fewer_codebooks_are_the_first_ones(directory):
    codec = load(directory)
    audio = noise(1500, 1)
    fewer = 2 if codec.num_codebooks > 2 else 1
    part = load(directory, num_codebooks=fewer)
    assert torch.equal(part.encode(audio), codec.encode(audio)[:fewer])
    assert part.identity()["sha256"] != codec.identity()["sha256"] or fewer == codec.num_codebooks
    assert len(part.decode(part.encode(audio)))
    with pytest.raises(ConfigurationError, match=r"codebooks, and 9 were asked for"):
        load(directory, num_codebooks=9)


def test_its_identity_is_that_of_its_weights(directory, tmp_path):
    other = shutil.copytree(directory, tmp_path / directory.name)
    assert load(other).identity() == load(directory).identity()
    from safetensors.torch import load_file, save_file

    path = other / "model.safetensors"
    state = load_file(path)
    name = next(key for key, value in state.items() if value.is_floating_point())
    state[name] = state[name] + 1.0
    save_file(state, path, metadata={"format": "pt"})
    assert load(other).identity()["sha256"] != load(directory).identity()["sha256"]


def test_encodec_names_the_codebooks_it_can(tmp_path):
    path = testing_codecs.encodec(tmp_path / "encodec")
    with pytest.raises(ConfigurationError, match="its bandwidths have 1, 2, 4"):
        load(path, num_codebooks=3)


def test_something_else_is_refused(tmp_path):
    from voicehub_codec_lm.testing import llama

    with pytest.raises(ConfigurationError, match="is a 'llama', not a codec"):
        load(llama(tmp_path / "llama"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match="cannot be read as a codec"):
        load(tmp_path / "empty")
