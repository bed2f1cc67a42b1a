"""The token cache: encoded once, whatever happens to names and runs."""

from __future__ import annotations

import pickle

import pytest
import soundfile
import torch

from voicehub.errors import CheckpointError, DataError
from voicehub_codec_lm.codecs import CorpusCodec, TokenCache
from voicehub_codec_lm.codecs import cache as cache_module
from voicehub_codec_lm.codecs.cache import clip_keys
from voicehub_codec_lm.conformance import RATE, letters_of, tone_codec, tones
from voicehub_data.manifest import ManifestRow


class Counting(CorpusCodec):
    """Counts what it encodes, and stops after so many."""

    def __init__(self, codec, limit=None):
        super().__init__(codec.config, codec.codebooks)
        self.calls, self.limit = 0, limit

    def encode(self, audio):
        if self.limit is not None and self.calls >= self.limit:
            raise KeyboardInterrupt
        self.calls += 1
        return super().encode(audio)


@pytest.fixture
def rows(tmp_path):
    made = []
    for number in range(7):
        path = tmp_path / f"{number}.wav"
        soundfile.write(path, tones(letters_of(3 + number % 3, number), number), RATE)
        made.append(ManifestRow(f"r{number}", path, "x"))
    return made


def test_codes_come_back_as_they_were_made(rows, codec, tmp_path):
    counting = Counting(codec)
    cache = TokenCache(tmp_path / "tokens", counting)
    keys = cache.fill(rows)
    again = TokenCache(tmp_path / "tokens", codec)
    for key, row in zip(keys, rows, strict=True):
        expected = codec.encode(cache_module.row_audio(row, codec))
        assert torch.equal(cache.codes(key), expected)
        assert torch.equal(again.codes(key), expected)
    assert counting.calls == len(rows) == len(again)


def test_nothing_is_encoded_twice(rows, codec, tmp_path):
    TokenCache(tmp_path / "tokens", codec).fill(rows)
    counting = Counting(codec)
    cache = TokenCache(tmp_path / "tokens", counting)
    assert cache.fill([*rows, *rows]) and counting.calls == 0
    moved = tmp_path / "elsewhere.wav"
    rows[0].audio_filepath.rename(moved)
    cache.fill([ManifestRow("other", moved, "y")])
    assert counting.calls == 0
    soundfile.write(moved, tones("dddd", 9), RATE)
    cache.fill([ManifestRow("other", moved, "y")])
    assert counting.calls == 1


def test_equal_clips_are_encoded_once(rows, codec, tmp_path):
    twin = tmp_path / "twin.wav"
    twin.write_bytes(rows[0].audio_filepath.read_bytes())
    counting = Counting(codec)
    keys = TokenCache(tmp_path / "tokens", counting).fill([rows[0], ManifestRow("t", twin, "x")])
    assert counting.calls == 1 and keys[0] == keys[1]


def test_an_interrupted_fill_goes_on_where_it_stopped(rows, codec, tmp_path, monkeypatch):
    monkeypatch.setattr(cache_module, "SHARD_CLIPS", 2)
    with pytest.raises(KeyboardInterrupt):
        TokenCache(tmp_path / "tokens", Counting(codec, limit=5)).fill(rows)
    assert not list((tmp_path / "tokens").rglob("*.part"))
    counting = Counting(codec)
    cache = TokenCache(tmp_path / "tokens", counting)
    assert len(cache) == 4
    told = []
    cache.fill(rows, lambda done, total: told.append((done, total)))
    assert counting.calls == 3 and told == [(2, 3), (3, 3)]


def test_a_segment_is_a_clip_of_its_own(rows, codec, tmp_path):
    path = rows[0].audio_filepath
    parts = [
        ManifestRow("a", path, "x", duration=0.05, is_segment=True),
        ManifestRow("b", path, "x", duration=0.03, offset=0.02, is_segment=True),
    ]
    cache = TokenCache(tmp_path / "tokens", codec)
    keys = cache.fill([rows[0], *parts])
    assert len(set(keys)) == 3
    assert [cache.codes(key).shape[1] for key in keys[1:]] == [4, 2]


def test_codecs_do_not_share_codes(rows, codec, tmp_path):
    other = tone_codec(seed=1)
    first, second = (TokenCache(tmp_path / "tokens", c) for c in (codec, other))
    first.fill(rows)
    second.fill(rows)
    assert first.directory != second.directory
    key = clip_keys(rows)[0]
    assert torch.equal(second.codes(key), other.encode(cache_module.row_audio(rows[0], other)))


def test_a_damaged_shard_is_named(rows, codec, tmp_path):
    cache = TokenCache(tmp_path / "tokens", codec)
    cache.fill(rows)
    (shard,) = cache.directory.glob("*.safetensors")
    shard.write_bytes(b"broken")
    with pytest.raises(CheckpointError, match="Delete it: its clips are encoded again"):
        TokenCache(tmp_path / "tokens", codec)


def test_workers_read_a_cache_that_was_sent_to_them(rows, codec, tmp_path):
    cache = TokenCache(tmp_path / "tokens", codec)
    (key, *_) = cache.fill(rows)
    cache.codes(key)
    sent = pickle.loads(pickle.dumps(cache))
    assert torch.equal(sent.codes(key), cache.codes(key))


def test_missing_clips_and_files_are_named(rows, codec, tmp_path):
    cache = TokenCache(tmp_path / "tokens", codec)
    with pytest.raises(DataError, match="is not in"):
        cache.codes("0" * 64)
    with pytest.raises(DataError, match=r"gone\.wav cannot be read"):
        cache.fill([ManifestRow("gone", tmp_path / "gone.wav", "x")])
