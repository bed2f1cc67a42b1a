"""Speakers, pieces, speeds, hard prototypes, class maps."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from voicehub.data.keyed_random import SampleKey
from voicehub.errors import CheckpointError, ConfigurationError, DataError
from voicehub_data.manifest import read_manifest
from voicehub_data.samplers import RandomChunkPlan
from voicehub_data.splits import read_split
from voicehub_xvector.class_map import (
    class_names,
    load_classes,
    remap_classes,
    save_classes,
)
from voicehub_xvector.config import LogMelFeaturesConfig, LogMelRunConfig, XVectorDataConfig
from voicehub_xvector.data import XVectorCollator, XVectorDataset, speaker_split
from voicehub_xvector.data.hard_prototypes import HardPrototypesPlan, NeighbourUpdate
from voicehub_xvector.front_ends import build_features
from voicehub_xvector.loss_config import LossConfig
from voicehub_xvector.losses import build_loss

FRONT_END = build_features(LogMelFeaturesConfig(n_mels=20))


def split_of(path, *, training=True, **settings):
    config = XVectorDataConfig.model_validate({"train": str(path), **settings})
    split = read_split("train", config.train, config, training=training, sample_rate=16000)
    return speaker_split(split, config)


def edited(path, folder, change):
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for number, row in enumerate(rows):
        row["audio_filepath"] = str(path.parent / row["audio_filepath"])
        change(number, row)
    out = folder / "edited.jsonl"
    out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return out


def test_speakers_are_counted_and_chosen(voice_corpus):
    path = voice_corpus(24)
    everyone = split_of(path)
    assert everyone.report.kept == 24 and set(everyone.speakers) == {"ann", "bob", "cat", "dan"}
    some = split_of(path, train_speakers=["ann", "cat"])
    assert set(some.speakers) == {"ann", "cat"}
    assert some.report.dropped == {"other-speaker": 24 - len(some.rows)}


def test_an_unknown_speaker_is_an_error(voice_corpus):
    with pytest.raises(DataError, match="Did you mean 'ann'"):
        split_of(voice_corpus(24), train_speakers=["anne", "bob"])


def test_rows_without_a_speaker_are_counted(voice_corpus, tmp_path):
    path = edited(voice_corpus(24), tmp_path, lambda i, row: i < 5 and row.pop("speaker"))
    split = split_of(path)
    assert split.report.dropped == {"no-speaker": 5} and split.report.kept == 19
    nobody = edited(voice_corpus(24), tmp_path, lambda i, row: row.pop("speaker"))
    with pytest.raises(DataError, match="0 speakers are left"):
        split_of(nobody)


def test_rare_speakers_are_left_out_on_request(voice_corpus, tmp_path):
    path = edited(
        voice_corpus(24),
        tmp_path,
        lambda i, row: row.update(speaker="rare" if i == 0 else "abc"[i % 2]),
    )
    assert "rare" in split_of(path).speakers
    split = split_of(path, min_utterances=2)
    assert "rare" not in split.speakers and split.report.dropped == {"rare-speaker": 1}


def test_verification_needs_two_recordings_of_a_voice(voice_corpus, tmp_path):
    path = edited(voice_corpus(24), tmp_path, lambda i, row: row.update(speaker=f"s{i}"))
    with pytest.raises(DataError, match="no speaker has two recordings"):
        split_of(path, training=False)


def dataset_of(path, **more):
    rows = read_manifest(path).rows
    classes = class_names([str(row.speaker) for row in rows], more.get("speeds", ()))
    return XVectorDataset(rows, classes, FRONT_END, **more), classes


def test_speeds_make_new_speakers(voice_corpus):
    data, classes = dataset_of(voice_corpus(12), speeds=(0.9, 1.1))
    assert len(data) == 36 and len(classes) == 12
    for index in range(12):
        plain, slow, fast = (data[index + 12 * turn] for turn in range(3))
        assert slow.speaker == f"{plain.speaker}@0.9" and fast.id == f"{plain.id}@1.1"
        assert len({plain.label, slow.label, fast.label}) == 3
        assert slow.seconds == pytest.approx(plain.seconds / 0.9, abs=2e-4)
        assert fast.seconds == pytest.approx(plain.seconds / 1.1, abs=2e-4)
    limits = data.planning_durations
    assert all(data[i].seconds <= limits[i] + 2e-4 for i in range(36))


def test_unknown_speakers_have_no_label(voice_corpus):
    rows = read_manifest(voice_corpus(12)).rows
    data = XVectorDataset(rows, ["ann"], FRONT_END)
    labels = {data[i].speaker: data[i].label for i in range(12)}
    assert labels.pop("ann") == 0 and set(labels.values()) == {-1}


def test_pieces_depend_on_the_draw_alone(voice_corpus):
    path = voice_corpus(12)
    data, _ = dataset_of(path, speeds=(1.1,), cache_bytes=1 << 20)
    bare, _ = dataset_of(path, speeds=(1.1,))
    plan = RandomChunkPlan(data.planning_durations, (0.1, 0.2), 1.0, 8, seed=4)
    data.cut_by(plan)
    bare.cut_by(plan)
    for index in (0, 5, 17):
        key = SampleKey(4, 1, index, index)
        first, again, other = data.get_item(index, key), bare.get_item(index, key), None
        assert torch.equal(first.prepared.rows, again.prepared.rows)
        assert first.seconds <= plan.chunk_seconds_of(1, index) + 1e-4
        other = data.get_item(index, SampleKey(4, 2, index, index))
        assert not torch.equal(first.prepared.rows[:5], other.prepared.rows[:5])


def test_short_recordings_are_repeated_where_lengths_must_be_equal(voice_corpus):
    path = voice_corpus(12)
    data, _ = dataset_of(path, speeds=(0.9, 1.1), fills_pieces=True)
    data.cut_by(RandomChunkPlan(data.planning_durations, (0.5, 0.5), 4.0, 8))
    items = [data.get_item(i, SampleKey(0, 0, i, i)) for i in range(len(data))]
    assert {item.prepared.valid for item in items} == {FRONT_END.log_mel.num_frames(8000)}


def test_ecapa_is_refused_whole_recordings(voice_corpus, run_values, tmp_path):
    values = run_values(voice_corpus(24), None, tmp_path)
    values["model"]["head"] = {"kind": "ecapa"}
    with pytest.raises(ValueError, match="pieces of equal length"):
        LogMelRunConfig.model_validate(values)


def test_pieces_of_long_recordings_are_decoded_alone(tmp_path):
    import soundfile

    audio = np.random.default_rng(0).standard_normal(16000 * 40).astype(np.float32) * 0.1
    soundfile.write(tmp_path / "long.wav", audio, 16000, subtype="FLOAT")
    lines = [{"id": f"r{i}", "audio_filepath": "long.wav", "speaker": s, "duration": 40.0}
             for i, s in enumerate("ab")]  # fmt: skip
    manifest = tmp_path / "m.jsonl"
    manifest.write_text("".join(json.dumps(row) + "\n" for row in lines))
    data, _ = dataset_of(manifest)
    data.cut_by(RandomChunkPlan(data.planning_durations, (1.0, 1.0), 2.0, 2))
    item = data.get_item(0, SampleKey(0, 0, 0, 0))
    assert item.seconds == pytest.approx(1.0)
    assert not data.speech._memory, "the whole recording was decoded"


def test_batches_hold_what_the_network_takes(voice_corpus):
    data, _ = dataset_of(voice_corpus(12))
    batch = XVectorCollator(FRONT_END)([data[0], data[1]])
    assert batch["labels"].tolist() == [data[0].label, data[1].label]
    assert batch["features"].shape == (2, int(batch["lengths"].max()), 20)
    with pytest.raises(DataError, match="at least one"):
        XVectorCollator(FRONT_END)([])


# -- hard prototypes ---------------------------------------------------------------------------


def hard_plan(**more):
    labels = np.repeat(np.arange(6), 10)
    return HardPrototypesPlan(
        [1.0] * 60, labels, (0.5, 0.5), 6.0, 12, neighbours=2, per_speaker=2, seed=3, **more
    )


def test_batches_hold_the_nearest_speakers():
    plan = hard_plan()
    table = np.array([[1, 2], [0, 2], [0, 1], [4, 5], [3, 5], [3, 4]])
    plan.set_neighbours(table)
    batches = plan.batches(0)
    assert sum(map(len, batches)) == 60 and all(len(b) * 0.5 <= 6.0 for b in batches)
    for batch in batches:
        for start in range(0, len(batch), 6):
            speakers = {int(plan.labels[i]) for i in batch[start : start + 6]}
            assert speakers in ({0, 1, 2}, {3, 4, 5})


def test_the_number_of_batches_does_not_depend_on_the_prototypes():
    plan = hard_plan()
    before = plan.num_batches(1), plan.batches(1)
    plan.set_neighbours(np.array([[1, 2], [0, 2], [0, 1], [4, 5], [3, 5], [3, 4]]))
    assert plan.num_batches(1) == before[0] == len(plan.batches(1))
    assert plan.batches(1) != before[1]


def test_the_table_is_looked_up_at_epochs_and_survives_a_resume():
    torch.manual_seed(0)
    loss = build_loss(LossConfig(), 4, 6)
    context = {"adapter": SimpleNamespace(module=SimpleNamespace(loss=loss))}
    plan = hard_plan()
    update = NeighbourUpdate(plan)
    for step in (0, 9):  # Before the first step, too: a stage begins with trained prototypes.
        torch.nn.init.normal_(loss.weight)
        begin = SimpleNamespace(train_batch_cursor=0, global_step=step)
        update.on_epoch_begin(None, begin, None, **context)
        distances = loss.prototype_distances() + 9 * torch.eye(6)
        assert plan.table.tolist() == distances.topk(2, largest=False).indices.tolist()
    saved, seen = json.loads(json.dumps(update.state_dict())), plan.batches(1)
    again = hard_plan()
    resumed = NeighbourUpdate(again)
    resumed.load_state_dict(saved)
    torch.nn.init.normal_(loss.weight)
    middle = SimpleNamespace(train_batch_cursor=2, global_step=11)
    resumed.on_epoch_begin(None, middle, None, **context)
    assert again.batches(1) == seen


def test_groups_must_fit():
    with pytest.raises(ConfigurationError, match="at most 5 others"):
        HardPrototypesPlan([1.0] * 6, range(6), (0.5, 0.5), 9.0, 12, neighbours=6)
    with pytest.raises(ConfigurationError, match="does not fit"):
        HardPrototypesPlan([1.0] * 6, range(6), (0.5, 0.5), 9.0, 4, neighbours=4)


# -- class maps --------------------------------------------------------------------------------


def test_class_maps_are_saved_and_matched_by_name(tmp_path):
    old = class_names(["bob", "ann", "bob"], (0.9,))
    assert old == ["ann", "bob", "ann@0.9", "bob@0.9"]
    save_classes(old, tmp_path)
    assert load_classes(tmp_path) == old
    remapping = remap_classes(old, ["ann", "zoe", "bob"])
    assert remapping.pairs == [(0, 0), (1, 2)]
    assert remapping.new == ["zoe"] and remapping.dropped == ["ann@0.9", "bob@0.9"]
    assert "1 are new (zoe)" in remapping.describe()


def test_a_damaged_class_map_is_named(tmp_path):
    (tmp_path / "classes.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"classes\.json: expected a JSON list"):
        load_classes(tmp_path)


def test_a_speaker_with_the_name_of_a_speed_is_refused():
    with pytest.raises(DataError, match=r"'ann@0\.9' has the name of 'ann' at speed 0\.9"):
        class_names(["bob", "ann@0.9", "ann"], (1.1, 0.9))
    assert class_names(["ann", "ann@0.9"], (1.1,))[2:] == ["ann@1.1", "ann@0.9@1.1"]
