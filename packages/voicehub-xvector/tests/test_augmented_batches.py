"""Batches as training gets them: caps over whole epochs, draws, noise, reverberation, speeds."""

from __future__ import annotations

import json

import numpy as np
import pytest
import soundfile
import torch

from voicehub.data.keyed_random import SampleKey
from voicehub_xvector.config import LogMelRunConfig
from voicehub_xvector.experiment import build_experiment

PIECES = {"chunk_seconds": [0.2, 0.5], "max_padded_seconds": 3}
SAMPLERS = {
    "bucketed": {"max_padded_seconds": 8, "num_buckets": 4},
    "random-chunk": PIECES,
    "class-weighted": PIECES,
    "hard-prototypes": {**PIECES, "neighbours": 2, "per_speaker": 2},
}


@pytest.fixture(scope="module")
def sounds(tmp_path_factory):
    """Folders of noises and of impulse responses: a click, and its echo 400 samples later."""
    folder = tmp_path_factory.mktemp("sounds")
    generator = np.random.default_rng(5)
    for name in ("noise", "rooms"):
        (folder / name).mkdir()
    soundfile.write(folder / "noise/a.wav", 0.1 * generator.standard_normal(5000), 16000)
    room = np.zeros(1600)
    room[0], room[400] = 0.8, 0.5
    soundfile.write(folder / "rooms/a.wav", room, 16000)
    return folder


@pytest.fixture(scope="module")
def corpus(voice_corpus, tmp_path_factory):
    """Forty short recordings and one that is longer than the cap of pieces."""
    path = voice_corpus(40)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    long = np.concatenate([soundfile.read(path.parent / r["audio_filepath"])[0] for r in rows[:9]])
    folder = tmp_path_factory.mktemp("corpus")
    soundfile.write(folder / "long.wav", long, 16000)
    seconds = len(long) / 16000
    assert 3 < seconds < 5.5
    for row in rows:
        row["audio_filepath"] = str(path.parent / row["audio_filepath"])
    added = {"audio_filepath": str(folder / "long.wav"), "duration": seconds, "id": "long"}
    lines = [json.dumps(row) for row in [*rows, {**rows[0], **added}]]
    (folder / "m.jsonl").write_text("\n".join(lines) + "\n")
    return folder / "m.jsonl"


def experiment_of(run_values, corpus, folder, kind, augment, *, speeds=(), head=None):
    values = run_values(corpus, None, folder)
    values["data"].update(
        sampler={"kind": kind, **SAMPLERS[kind]}, speed_speakers=list(speeds), augment=augment
    )
    values["model"]["head"] = head or values["model"]["head"]
    return build_experiment(LogMelRunConfig.model_validate(values))


def epoch_of(experiment, epoch):
    """Items of every batch, drawn as training draws them."""
    draw = 0
    for batch in experiment.train_plan.batches(epoch):
        keys = [SampleKey(0, epoch, draw + n, index) for n, index in enumerate(batch)]
        draw += len(batch)
        yield [experiment.train_dataset.get_item(k.index, k) for k in keys]


@pytest.mark.parametrize("kind", SAMPLERS)
def test_no_batch_of_an_epoch_is_over_the_cap(kind, run_values, corpus, sounds, tmp_path):
    augment = {
        "speed": {"factors": [0.8, 1.0, 1.2]},
        "reverb": {"folder": str(sounds / "rooms")},
        "noise": {"folder": str(sounds / "noise")},
    }
    experiment = experiment_of(run_values, corpus, tmp_path, kind, augment, speeds=(0.9,))
    cap, longest, count = SAMPLERS[kind]["max_padded_seconds"], 0.0, 0
    for items in epoch_of(experiment, 1):
        frames = max(item.prepared.valid for item in items)
        assert len(items) * max(item.seconds for item in items) <= cap + 1e-9
        longest, count = max(longest, 0.01 * frames * len(items)), count + len(items)
    assert count == 82 and 0.6 * cap < longest <= cap


ECAPA = {
    "kind": "ecapa", "channels": [16, 16, 16, 16, 24], "attention_channels": 4, "scales": 4,
    "se_channels": 4, "embedding_size": 6,
}  # fmt: skip


def test_augmented_pieces_of_an_ecapa_are_equally_long(run_values, corpus, tmp_path):
    augment = {"speed": {"factors": [0.8, 1.25]}}
    experiment = experiment_of(run_values, corpus, tmp_path, "random-chunk", augment, head=ECAPA)
    for items in epoch_of(experiment, 0):
        assert len({item.prepared.valid for item in items}) == 1


def test_noise_and_rooms_reach_the_model_by_key_alone(run_values, corpus, sounds, tmp_path):
    only = {
        "noise": {"folder": str(sounds / "noise"), "snr": [0, 0], "probability": 1},
        "reverb": {"folder": str(sounds / "rooms"), "probability": 1},
    }
    rows = {}
    for name, augment in (("plain", {}), *((name, {name: only[name]}) for name in only)):
        data = experiment_of(run_values, corpus, tmp_path, "random-chunk", augment).train_dataset
        key = SampleKey(0, 0, 4, 9)
        item = data.get_item(9, key)
        rows[name] = item.prepared.rows
        assert torch.equal(data.get_item(9, key).prepared.rows, rows[name])
        assert item.prepared.valid == len(rows["plain"])  # neither makes a piece longer
        assert torch.isfinite(rows[name]).all()
    assert not torch.equal(rows["plain"], rows["noise"])
    assert not torch.equal(rows["plain"], rows["reverb"])
    # Noise as loud as the voice fills its pauses and gaps between partials: a flatter spectrum.
    assert rows["noise"].std() < rows["plain"].std()
