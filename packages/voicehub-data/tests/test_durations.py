"""Durations from headers."""

from __future__ import annotations

import pytest

from voicehub.errors import DataError
from voicehub_data.durations import fill_durations
from voicehub_data.manifest import read_manifest


@pytest.mark.parametrize("workers", [0, 3])
def test_missing_ones_are_filled(write_jsonl, write_audio, workers):
    write_audio("a.wav", 2.0, 8000)
    rows = [
        {"audio_filepath": "a.wav"},
        {"audio_filepath": "a.wav", "offset": 0.5},
        {"audio_filepath": "none.wav", "duration": 7.0},
    ]
    manifest = read_manifest(write_jsonl(rows))
    assert [row.duration for row in fill_durations(manifest, workers=workers)] == [2.0, 1.5, 7.0]


def test_all_failures_are_named(write_jsonl, write_audio, tmp_path):
    write_audio("a.wav", 1.0)
    (tmp_path / "text.wav").write_text("no audio here")
    write_audio("still.wav", 0.0)
    names = ("gone.wav", "a.wav", "text.wav", "still.wav")
    rows = [{"audio_filepath": name} for name in names]
    manifest = read_manifest(write_jsonl([*rows, {"audio_filepath": "a.wav", "offset": 1.0}]))
    with pytest.raises(DataError) as error:
        fill_durations(manifest)
    message = str(error.value)
    assert "4 durations cannot be read" in message
    for words in (
        "row 1: ",
        "no such audio file",
        "row 3: ",
        "row 5: offset 1 s",
        "still.wav: holds no",
    ):
        assert words in message
