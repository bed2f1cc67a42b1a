"""Items are a function of their key, and of nothing else."""

from __future__ import annotations

import pytest
import torch

from voicehub.data.keyed_random import SampleKey
from voicehub_asr_ctc.config import LogMelModelConfig
from voicehub_asr_ctc.data import CTCCollator, CTCDataset
from voicehub_asr_ctc.front_ends import LogMelFrontEnd, PretrainedFrontEnd
from voicehub_data.augment import Compose, SpecAugment, Speed
from voicehub_data.manifest import read_manifest
from voicehub_hf.loading import load_checkpoint

MASKS = SpecAugment(2, 10, 0.5, 2, 8)


def dataset(path, **settings):
    rows = read_manifest(path).rows
    labels = [tuple(range(1, 2 + number % 3)) for number in range(len(rows))]
    front_end = settings.pop("front_end", None) or LogMelFrontEnd(LogMelModelConfig(n_mels=40))
    return CTCDataset(rows, labels, front_end, **settings)


def keys(epoch):
    return [SampleKey(7, epoch, draw, draw) for draw in range(4)]


@pytest.mark.parametrize("augment", [None, Compose([Speed((0.9, 1.1))])], ids=["plain", "speed"])
def test_caching_and_order_change_nothing(tone_corpus, augment):
    path = tone_corpus(4)
    kept = dataset(path, augment=augment, spec_augment=MASKS, cache_bytes=1 << 24)
    plain = dataset(path, augment=augment, spec_augment=MASKS)
    for epoch in (0, 1, 0):
        for index, key in reversed(list(enumerate(keys(epoch)))):
            one, other = kept.get_item(index, key), plain.get_item(index, key)
            assert torch.equal(one.prepared.rows, other.prepared.rows)
            assert one.seconds == other.seconds and one.labels == other.labels


def test_masks_differ_by_draw_and_are_absent_without_a_key(tone_corpus):
    data = dataset(tone_corpus(4), spec_augment=MASKS, cache_bytes=1 << 24)
    plain = data[0].prepared.rows
    drawn = [data.get_item(0, key).prepared.rows for key in keys(0)]
    assert len({tuple((rows == 0).nonzero().flatten().tolist()) for rows in drawn}) > 1
    assert all(((rows == plain) | (rows == 0)).all() for rows in drawn)
    assert torch.equal(data[0].prepared.rows, plain)


def test_a_batch_is_padded_and_described(tone_corpus):
    data = dataset(tone_corpus(4))
    items = [data.get_item(index, key) for index, key in enumerate(keys(0))]
    batch = CTCCollator(data.front_end)(items)
    frames = batch["frame_lengths"]
    assert batch["features"].shape == (4, max(batch["input_lengths"]), 40)
    assert batch["feature_lengths"].tolist() == batch["input_lengths"]
    assert frames == [(length + 1) // 2 for length in batch["input_lengths"]]
    for row, item in zip(batch["labels"], items, strict=True):
        assert tuple(row[row != -100].tolist()) == item.labels
    info = batch["batch_info"]
    assert info["ids"] == [item.id for item in items]
    assert info["padded_seconds"] >= info["audio_seconds"] > 0
    assert "time_mask" not in batch


def test_masks_over_hidden_states_are_drawn_by_key(tone_corpus, checkpoint_of):
    loaded = load_checkpoint(checkpoint_of("wav2vec2"))
    front_end = PretrainedFrontEnd(loaded.model.config, loaded.processor)
    data = dataset(tone_corpus(4), front_end=front_end, spec_augment=MASKS)
    assert data.spec_augment is None
    collate = CTCCollator(front_end, MASKS)
    items = [data.get_item(index, key) for index, key in enumerate(keys(0))]
    batch, again = collate(items), collate(list(reversed(items)))
    assert torch.equal(batch["time_mask"], again["time_mask"].flip(0))
    assert batch["feature_mask"].shape == (4, 24)
    for mask, frames in zip(batch["time_mask"], batch["frame_lengths"], strict=True):
        assert not mask[frames:].any()
    assert "time_mask" not in collate([data[0]])


def test_fingerprints_tell_settings_apart(tone_corpus):
    path = tone_corpus(4)
    one = dataset(path, spec_augment=MASKS).resume_fingerprint()
    assert one == dataset(path, spec_augment=MASKS, cache_bytes=99).resume_fingerprint()
    assert one != dataset(path).resume_fingerprint()
    other = LogMelFrontEnd(LogMelModelConfig(n_mels=41))
    assert one != dataset(path, spec_augment=MASKS, front_end=other).resume_fingerprint()
