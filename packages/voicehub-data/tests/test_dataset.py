"""The dataset: items, keyed draws under the loader, planning durations, errors by row."""

from __future__ import annotations

import json

import numpy as np
import pytest

from voicehub.data.keyed_random import SampleKey
from voicehub.data.loader import build_loader
from voicehub.data.plan import DurationBucketedPlan
from voicehub.errors import DataError
from voicehub_data.augment import Compose, Gain, Speed
from voicehub_data.dataset import SpeechDataset
from voicehub_data.manifest import read_manifest


@pytest.fixture
def manifest(write_jsonl, write_audio):
    rows = []
    for i in range(12):
        seconds = 0.2 + 0.05 * i
        write_audio(f"{i}.wav", seconds, 8000, seed=i)
        rows.append(
            {
                "id": f"u{i}",
                "audio_filepath": f"{i}.wav",
                "text": f"t{i}",
                "duration": seconds,
                "speaker": "s",
            }
        )
    return read_manifest(write_jsonl(rows))


def test_item(manifest):
    item = SpeechDataset(manifest, sample_rate=16000)[3]
    assert item["audio"].dtype == np.float32
    assert item["audio"].shape == (5600,)
    audio = item.pop("audio")
    assert item == {
        "id": "u3",
        "text": "t3",
        "speaker": "s",
        "duration": len(audio) / 16000,
        "key": None,
    }


def test_augmentation_needs_a_key(manifest):
    clean = SpeechDataset(manifest, sample_rate=8000)
    data = SpeechDataset(manifest, sample_rate=8000, augment=Compose([Gain((3, 9))]))
    key = SampleKey(0, 0, 5, 3)
    assert np.array_equal(data[3]["audio"], clean[3]["audio"])
    item = data.get_item(3, key)
    assert item["key"] == key
    assert not np.array_equal(item["audio"], clean[3]["audio"])
    assert np.array_equal(item["audio"], data.get_item(3, key)["audio"])
    assert not np.array_equal(item["audio"], data.get_item(3, key._replace(draw=6))["audio"])


def test_transform_comes_last(manifest):
    seen = []

    def transform(item):
        seen.append(item["key"])
        return {"length": len(item["audio"]), "id": item["id"]}

    data = SpeechDataset(manifest, sample_rate=8000, transform=transform)
    assert data.get_item(0, SampleKey(1, 2, 3, 0)) == {"length": 1600, "id": "u0"}
    assert seen == [SampleKey(1, 2, 3, 0)]


def test_cache_changes_nothing_and_keeps_its_limit(manifest):
    augment = Compose([Gain(), Speed()])
    plain = SpeechDataset(manifest, sample_rate=16000, augment=augment)
    limit = 4 * (3200 + 4000)
    cached = SpeechDataset(manifest, sample_rate=16000, augment=augment, cache_bytes=limit)
    for _ in range(2):
        for i in range(len(manifest)):
            key = SampleKey(0, 0, i, i)
            one, two = plain.get_item(i, key), cached.get_item(i, key)
            assert np.array_equal(one["audio"], two["audio"])
    assert len(cached._memory) == 2
    with pytest.raises(ValueError, match="read-only"):
        cached[0]["audio"][0] = 1.0


def test_durations(manifest, write_jsonl, write_audio):
    data = SpeechDataset(manifest, sample_rate=16000)
    assert data.durations[:2] == [0.2, 0.25]
    assert data.planning_durations == data.durations
    slow = SpeechDataset(manifest, sample_rate=16000, augment=Compose([Speed((0.5, 1.0))]))
    assert slow.planning_durations[0] == pytest.approx(0.4)
    bare = read_manifest(write_jsonl([{"audio_filepath": "0.wav"}], "bare.jsonl"))
    with pytest.raises(DataError, match=r"bare\.jsonl, row 1.*fill_durations"):
        _ = SpeechDataset(bare, sample_rate=16000).durations


def test_the_cap_holds_after_augmentation(manifest):
    augment = Compose([Speed((0.8, 1.0, 1.2))])
    data = SpeechDataset(manifest, sample_rate=16000, augment=augment)
    plan = DurationBucketedPlan(data.planning_durations, 2.5, 8, seed=0)
    for draw, batch in enumerate(plan.batches(0)):
        items = [data.get_item(i, SampleKey(0, 0, draw, i)) for i in batch]
        # Each clip's length is rounded to whole samples, twice.
        assert len(items) * max(item["duration"] for item in items) <= 2.5 + len(items) * 2e-4


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_change_nothing(manifest, workers):
    data = SpeechDataset(manifest, sample_rate=16000, augment=Compose([Gain(), Speed()]))
    plan = DurationBucketedPlan(data.planning_durations, 3.0, 4, seed=7)

    def load(num_workers, start):
        batches = build_loader(
            data,
            plan,
            epoch=1,
            start_batch=start,
            collate_fn=list,
            num_workers=num_workers,
            pin_memory=False,
            rank=0,
            world_size=1,
            prefetch_factor=2 if num_workers else None,
        )
        return [[(i["id"], i["key"], i["audio"].tobytes()) for i in batch] for batch in batches]

    here = load(0, 0)
    assert load(workers, 0) == here
    assert load(workers, 2) == here[2:]


def test_errors_name_the_row(write_jsonl, tmp_path):
    path = write_jsonl([{"id": "x", "audio_filepath": "gone.wav"}])
    data = SpeechDataset(read_manifest(path), sample_rate=16000)
    with pytest.raises(DataError, match=r"manifest\.jsonl, row 1 \(id 'x'\): .*no such audio"):
        _ = data[0]


def test_no_rows_and_repeated_ids(manifest):
    with pytest.raises(DataError, match="no rows"):
        SpeechDataset([], sample_rate=16000)
    with pytest.raises(DataError, match="row 1 .*id is taken by"):
        SpeechDataset([*manifest, manifest[0]], sample_rate=16000)


def test_resume_fingerprint(manifest, write_jsonl, tmp_path):
    data = SpeechDataset(manifest, sample_rate=16000, augment=Compose([Gain()]))
    fingerprint = json.loads(json.dumps(data.resume_fingerprint()))
    moved = [
        type(row)(**{**{f: getattr(row, f) for f in row.__slots__}, "source": tmp_path})
        for row in manifest
    ]
    same = SpeechDataset(moved, sample_rate=16000, augment=Compose([Gain()]))
    assert same.resume_fingerprint() == fingerprint
    for other in (
        SpeechDataset(manifest.rows[1:], sample_rate=16000, augment=Compose([Gain()])),
        SpeechDataset(manifest, sample_rate=8000, augment=Compose([Gain()])),
        SpeechDataset(manifest, sample_rate=16000, augment=Compose([Gain((0, 1))])),
        SpeechDataset(manifest, sample_rate=16000),
    ):
        assert other.resume_fingerprint() != fingerprint
