"""Data sets of prepared inputs: what is kept, and what a key changes."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch

from voicehub.data.keyed_random import SampleKey
from voicehub_data.augment import Compose, Gain, SpecAugment
from voicehub_data.manifest import read_manifest
from voicehub_data.masked_inputs import masked
from voicehub_data.prepared_dataset import PreparedDataset


class Features(NamedTuple):
    rows: torch.Tensor
    valid: int


class Frames(PreparedDataset[tuple[str, Features, float], Features]):
    """Ten samples a frame."""

    def __init__(self, rows, **settings):
        super().__init__(rows, sample_rate=8000, **settings)
        self.prepared_clips = 0

    def prepare(self, audio):
        self.prepared_clips += 1
        rows = torch.from_numpy(audio.copy())[: len(audio) // 10 * 10].view(-1, 10)
        return Features(rows, len(rows))

    def get_item(self, index, key):
        prepared, seconds = self.prepared(index, key)
        return self.sample_id(index), prepared, seconds


@pytest.fixture
def manifest(write_audio, write_jsonl):
    for name in "ab":
        write_audio(f"{name}.wav", 0.25, 8000, seed=ord(name))
    lines = [{"id": n, "audio_filepath": f"{n}.wav", "duration": 0.25} for n in "ab"]
    return read_manifest(write_jsonl(lines))


KEY = SampleKey(0, 0, 1, 1)


def test_inputs_are_kept_where_the_audio_stays_the_same(manifest):
    data = Frames(manifest, augment=None, cache_bytes=1 << 20)
    assert (len(data), data.ids, data.planning_durations) == (2, ["a", "b"], [0.25, 0.25])
    first, again = data[1], data.get_item(1, KEY)
    assert first[1].rows is again[1].rows
    assert (first[0], first[2], data.prepared_clips) == ("b", 0.25, 1)


def test_audio_is_kept_where_it_is_augmented(manifest):
    augment = Compose([Gain((3.0, 9.0))])
    data = Frames(manifest, augment=augment, cache_bytes=1 << 20)
    clean, loud = data[1], data.get_item(1, KEY)
    assert not torch.equal(clean[1].rows, loud[1].rows)
    assert torch.equal(loud[1].rows, data.get_item(1, KEY)[1].rows)
    assert len(data.speech._memory) == 1
    assert data.prepared_clips == 3


def test_masks_need_a_key_and_leave_padding(manifest):
    features = Features(torch.ones(20, 8), 12)
    masks = SpecAugment(2, 6, 1.0, 2, 4)
    assert masked(features, None, 8000, KEY, "a") is features
    assert masked(features, masks, 8000, None, "a") is features
    drawn = masked(features, masks, 8000, KEY, "a")
    assert (features.rows == 1).all(), "the input itself is not written to"
    assert drawn.valid == 12 and (drawn.rows[:12] == 0).any() and (drawn.rows[12:] == 1).all()
    assert torch.equal(drawn.rows, masked(features, masks, 8000, KEY, "a").rows)
    assert not torch.equal(drawn.rows, masked(features, masks, 8000, KEY, "b").rows)
