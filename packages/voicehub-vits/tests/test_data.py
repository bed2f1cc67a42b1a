"""Clips are prepared once and kept by content; draws depend on the sample's key alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from voicehub.data.keyed_random import SampleKey
from voicehub.errors import ConfigurationError, DataError
from voicehub_data.manifest import ManifestRow, read_manifest
from voicehub_data.speech_level import speech_level
from voicehub_vits.acoustic import AcousticConfig
from voicehub_vits.conformance import VitsCase, tones
from voicehub_vits.data import AudioPreparation, VitsCollator, VitsDataset
from voicehub_vits.data.dataset import Labels
from voicehub_vits.data.voices import Voices
from voicehub_vits.experiment import build_experiment
from voicehub_vits.testing import ACOUSTIC, write_wave

ACOUSTICS = AcousticConfig.model_validate(ACOUSTIC)
HOP, RATE = ACOUSTICS.hop_length, ACOUSTICS.sampling_rate


@pytest.fixture
def row(tmp_path: Path) -> ManifestRow:
    silence = np.zeros(RATE // 2, dtype=np.float32)
    audio = np.concatenate([silence, tones("abcd", 0), silence])
    path = write_wave(tmp_path / "clip.wav", audio)
    return ManifestRow("clip", path, "abcd", duration=len(audio) / RATE, row=1)


def test_clips_are_trimmed_levelled_and_cut_to_whole_frames(row: ManifestRow) -> None:
    whole = AudioPreparation(ACOUSTICS, trim=False)(row)
    prepared = AudioPreparation(ACOUSTICS, trim_margin=0.0, loudness=-20.0)(row)
    assert len(whole.audio) // HOP == whole.frames == int((row.duration or 0) * RATE) // HOP
    assert len(prepared.audio) == prepared.frames * HOP
    assert len(prepared.audio) / RATE == pytest.approx(4 * 0.128, abs=0.05)
    assert speech_level(prepared.audio.numpy(), RATE) == pytest.approx(-20.0, abs=0.5)
    assert prepared.spectrogram.shape == (33, prepared.frames)


def test_kept_clips_are_named_by_all_that_they_are_made_of(
    row: ManifestRow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    first = AudioPreparation(ACOUSTICS, cache=cache)
    made = first(row)
    (kept,) = cache.iterdir()
    monkeypatch.setattr(AudioPreparation, "_prepare", lambda *_: pytest.fail("prepared again"))
    again = AudioPreparation(ACOUSTICS, cache=cache)(row)
    assert torch.equal(made.audio, again.audio)
    assert torch.equal(made.spectrogram, again.spectrogram)
    keys = {
        first.key(row),
        first.key(replace(row, offset=0.1)),
        AudioPreparation(ACOUSTICS, loudness=-20.0).key(row),
        AudioPreparation(ACOUSTICS, trim=False).key(row),
    }
    write_wave(row.audio_filepath, tones("dcba", 1))
    keys.add(first.key(row))
    assert len(keys) == 5 and f"{kept.stem}" in keys
    moved = replace(row, id="other", audio_filepath=row.audio_filepath.rename(tmp_path / "b.wav"))
    assert first.key(moved) in keys


def test_a_damaged_kept_clip_is_made_again(row: ManifestRow, tmp_path: Path) -> None:
    preparation = AudioPreparation(ACOUSTICS, cache=tmp_path / "cache")
    made = preparation(row)
    (kept,) = (tmp_path / "cache").iterdir()
    kept.write_bytes(kept.read_bytes()[:100])
    again = preparation(row)
    assert torch.equal(made.spectrogram, again.spectrogram)
    assert kept.stat().st_size > 100


def test_draws_depend_on_key_and_id_alone() -> None:
    collate = VitsCollator(ACOUSTICS, 8)
    case = VitsCase()
    items = [
        case.item(length, seed)._replace(key=SampleKey(0, 1, seed, seed))
        for seed, length in enumerate((3, 6, 4))
    ]
    together = collate(items)
    for position, item in enumerate(items):
        alone = collate([item])
        frames, tokens = item.prepared.frames, len(item.input_ids)
        noise = together["posterior_noise"][position]
        assert torch.equal(noise[:, :frames], alone["posterior_noise"][0])
        assert not noise[:, frames:].any()
        assert torch.equal(
            together["duration_noise"][position, :, :tokens], alone["duration_noise"][0]
        )
        start = together["segment_starts"][position]
        assert start == alone["segment_starts"][0] and 0 <= start <= frames - 16
        segment = item.prepared.audio[start * HOP : start * HOP + 256]
        assert torch.equal(together["segments"][position, 0], segment)
    later = collate([item._replace(key=SampleKey(0, 2, 0, 0)) for item in items[:1]])
    assert not torch.equal(later["posterior_noise"][0], collate(items[:1])["posterior_noise"][0])
    twice = [collate([items[0]._replace(key=None)]) for _ in range(2)]
    assert torch.equal(twice[0]["posterior_noise"], twice[1]["posterior_noise"])


def test_every_segment_is_drawn_alike() -> None:
    collate, item = VitsCollator(ACOUSTICS, 8), VitsCase().item(3, 0)
    places = item.prepared.frames - ACOUSTICS.segment_frames + 1
    starts = [
        collate._start(item._replace(key=SampleKey(0, epoch, 0, 0))) for epoch in range(4 * places)
    ]
    assert min(starts) >= 0 and max(starts) < places
    assert len(set(starts)) > 0.9 * places


def test_short_items_and_empty_batches_are_refused() -> None:
    collate, item = VitsCollator(ACOUSTICS, 8), VitsCase().item(3, 0)
    short = item._replace(
        prepared=item.prepared._replace(spectrogram=item.prepared.spectrogram[:, :8])
    )
    with pytest.raises(DataError, match="3-0: 8 frames are fewer than a segment's 16"):
        collate([short])
    with pytest.raises(DataError, match="at least one utterance"):
        collate([])


def test_prepared_clips_stay_in_memory_while_there_is_room(
    corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = read_manifest(str(corpus / "train.jsonl")).rows
    calls: list[str] = []
    original = AudioPreparation.__call__

    def count(self: Any, row: ManifestRow) -> Any:
        calls.append(row.id)
        return original(self, row)

    monkeypatch.setattr(AudioPreparation, "__call__", count)
    labels = [Labels((0, 2, 0))] * len(rows)
    for room, expected in ((1 << 24, 6), (0, 12)):
        calls.clear()
        dataset = VitsDataset(rows, labels, AudioPreparation(ACOUSTICS), cache_bytes=room)
        for _ in range(2):
            for index in range(len(dataset)):
                assert dataset[index].id == rows[index].id
        assert len(calls) == expected


def test_fingerprints_follow_rows_labels_and_preparation(corpus: Path) -> None:
    rows = list(read_manifest(str(corpus / "train.jsonl")).rows)
    labels = [Labels((0, 2, 0))] * len(rows)
    prints = [
        VitsDataset(rows, labels, AudioPreparation(ACOUSTICS)).resume_fingerprint(),
        VitsDataset(rows[:-1], labels[:-1], AudioPreparation(ACOUSTICS)).resume_fingerprint(),
        VitsDataset(
            rows, [Labels((0, 3, 0))] * 6, AudioPreparation(ACOUSTICS)
        ).resume_fingerprint(),
        VitsDataset(rows, labels, AudioPreparation(ACOUSTICS, loudness=-9.0)).resume_fingerprint(),
    ]
    assert all(a != b for i, a in enumerate(prints) for b in prints[:i])


def test_names_numbers_and_single_voices() -> None:
    voices = Voices(("anna", "7"), ("de",))
    assert [voices.speaker(name, "x") for name in ("anna", "7", 1, "0")] == [0, 1, 1, 0]
    assert voices.language(None, "x") == 0  # there is only one
    assert Voices().speaker(None, "x") == 0
    with pytest.raises(ConfigurationError, match="single voice"):
        Voices().speaker("anna", "x")
    with pytest.raises(ConfigurationError, match="no language 'fr', only de"):
        voices.language("fr", "x")
    assert Voices.from_dict(voices.to_dict()) == voices


def test_a_manifest_of_several_speakers_and_a_model_of_one_voice(
    checkpoint: Path, run_config: Any
) -> None:
    settings = {"path": str(checkpoint), "training_acoustic_config": ACOUSTIC}
    (report,) = build_experiment(run_config(settings)).data_report
    assert any("all are trained as one" in note for note in report.notes)


def test_rates_decay_by_epochs(checkpoint: Path, run_config: Any) -> None:
    settings = {"path": str(checkpoint), "training_acoustic_config": ACOUSTIC}
    config = run_config(settings, decay_per_epoch=0.81)
    build_experiment(config)  # six rows in batches of three: two updates an epoch
    assert config.training.lr_scheduler_type == "exponential"
    assert config.training.lr_scheduler_gamma == pytest.approx(0.9)
    with pytest.raises(ValueError, match="decay_per_epoch sets an exponential schedule"):
        run_config(settings, decay_per_epoch=0.9, training={"lr_scheduler_type": "cosine"})
