"""All splits of a run, what is said of them, and their texts."""

from __future__ import annotations

from voicehub_data.config import SplitsConfig
from voicehub_data.splits import read_splits
from voicehub_data.text.spoken import spoken_texts


def test_the_training_split_comes_first_and_alone_is_filtered(write_jsonl, write_audio):
    write_audio("long.wav", 0.5)
    write_audio("short.wav", 0.2)
    lines = [
        {"id": name, "audio_filepath": f"{name}.wav", "text": "One,  two"}
        for name in ("long", "short")
    ]
    config = SplitsConfig.load(
        {
            "train": [str(write_jsonl(lines, "a.jsonl"))],
            "eval": {
                "clean": str(write_jsonl(lines[:1], "b.jsonl")),
                "other": str(write_jsonl(lines, "c.jsonl")),
            },
            "filters": {"min_duration": 0.3},
        }
    )
    train, clean, other = read_splits(config, sample_rate=16000)
    assert [split.name for split in (train, clean, other)] == ["train", "clean", "other"]
    assert (train.training, clean.training, other.training) == (True, False, False)
    assert [row.id for row in train.rows] == ["long"]
    assert [row.id for row in other.rows] == ["long", "short"]
    report = train.report(train.rows, {**train.dropped, "rare": 0}, ["a note"])
    assert (report.split, report.total, report.kept, report.seconds) == ("train", 2, 1, 0.5)
    assert sum(report.dropped.values()) == 1 and report.notes == ["a note"]
    assert spoken_texts(other.rows, "basic") == ["one two", "one two"]
    assert spoken_texts(other.rows, "none") == ["One, two", "One, two"]
