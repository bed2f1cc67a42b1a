"""Rows and given audio as samples, rows of an evaluation, batches of similar lengths."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest
import torch

from voicehub.errors import DataError
from voicehub_data.audio import extended, load_audio
from voicehub_data.by_length import run_by_length
from voicehub_data.dataset import SpeechDataset
from voicehub_data.evaluation_rows import evaluation_notes, evaluation_rows
from voicehub_data.given_audio import given_audio, mono_samples
from voicehub_data.manifest import read_manifest
from voicehub_data.row_audio import SilenceNotes, load_row, load_rows
from voicehub_data.tensors import as_tensor, pad_rows


@pytest.fixture
def rows(write_audio, write_jsonl):
    """Half a second of a file from 0.25 s on, and a row without its file."""
    write_audio("a.wav", 1.0, 8000)
    path = write_jsonl(
        [
            {"id": "a", "audio_filepath": "a.wav", "offset": 0.25, "duration": 0.5},
            {"id": "gone", "audio_filepath": "gone.wav", "duration": 1.0},
        ]
    )
    return read_manifest(path).rows


def test_a_row_is_its_segment_and_a_piece_lies_within(rows):
    whole = load_audio(rows[0].audio_filepath, sample_rate=8000)
    assert np.array_equal(load_row(rows[0], 8000), whole[2000:6000])
    piece = load_row(rows[0], 8000, start=0.125, seconds=0.25)
    assert np.array_equal(piece, whole[3000:5000])


def test_rows_that_cannot_be_decoded_are_named(rows):
    with pytest.raises(DataError, match=r"row 2 \(id 'gone'\): .*no such audio file"):
        load_row(rows[1], 8000)
    waves, failures = load_rows(rows, 8000)
    assert waves[0] is not None and len(waves[0]) == 4000
    assert waves[1] is None
    assert len(failures) == 1 and "id 'gone'" in failures[0]


def test_silent_rows_are_told_once_and_only_the_first_ten(write_audio, write_jsonl, caplog):
    write_audio("speech.wav", 0.1, 8000)
    for number in range(13):
        write_audio(f"{number}.wav", np.zeros(800), 8000)
    names = ["speech", *range(13), 0]
    manifest = read_manifest(
        write_jsonl(
            [{"id": f"r{n}", "audio_filepath": f"{name}.wav"} for n, name in enumerate(names)]
        )
    )
    notes = SilenceNotes(logging.getLogger("voicehub_data.row_audio"))
    for row in (*manifest.rows, *manifest.rows):
        notes.look_at(load_audio(row.audio_filepath, sample_rate=8000), row)
    assert len(caplog.messages) == 11
    first = caplog.messages[0]
    assert "row 2 (id 'r1')" in first and "0.wav: every sample that was read is zero" in first
    assert f"`voicehub data check {manifest.rows[0].source}` lists all" in caplog.messages[-1]


def test_training_meets_silent_rows(write_audio, write_jsonl, caplog):
    write_audio("silent.wav", np.zeros(800), 8000)
    path = write_jsonl([{"id": "still", "audio_filepath": "silent.wav", "text": "a"}])
    data = SpeechDataset(read_manifest(path).rows, sample_rate=8000)
    assert not data[0]["audio"].any()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "(id 'still')" in caplog.text


def test_given_audio_is_a_file_or_samples(rows):
    path = rows[0].audio_filepath
    assert np.array_equal(given_audio(path, 8000), load_audio(path, sample_rate=8000))
    strided = np.linspace(-1, 1, 8)[::2]
    taken = given_audio(strided, 8000)
    assert taken.dtype == np.float32 and taken.flags.c_contiguous
    assert np.array_equal(taken, strided.astype(np.float32))


@pytest.mark.parametrize("wrong", [np.zeros(0), np.zeros((2, 4)), np.array([0.0, np.nan])])
def test_samples_that_are_no_mono_audio_are_refused(wrong):
    with pytest.raises(DataError, match=r"audio array of shape .* \(n,\) at 8000 Hz, n > 0"):
        given_audio(wrong, 8000)
    with pytest.raises(DataError, match=r"waveform 3 of shape .* \(n,\), n > 0"):
        mono_samples(wrong, "waveform 3")


def test_rows_of_an_evaluation(write_jsonl):
    lines = [{"id": name, "audio_filepath": f"{name}.wav", "text": "t"} for name in "aba"]
    path = write_jsonl([*lines, "{", {"id": "c", "audio_filepath": "c.wav", "text": "t"}])
    found, dropped, left_out = evaluation_rows(path)
    assert [row.id for row in found] == ["a", "b", "c"]
    assert dropped["duplicate-id"] == 1 and dropped.total() == 2
    notes = evaluation_notes(found, [*left_out, "x", "y"])
    assert len(left_out) == 2 and "row 4: not JSON" in " ".join(notes)
    assert notes[2:] == ["left out: x", "left out: 1 more"]
    silent = [replace(row, text=" ") for row in found]
    assert "no row has a text to compare with" in evaluation_notes(silent, [])[0]
    assert [row.id for row in evaluation_rows(path, 2)[0]] == ["a", "b"]
    with pytest.raises(DataError, match="no usable row"):
        evaluation_rows(write_jsonl(["{"], "broken.jsonl"))


def test_items_run_beside_others_of_their_length():
    batches = []

    def run(batch):
        batches.append(batch)
        return [word.upper() for word in batch]

    words = ["cccc", "a", "bb", "dddd", "e"]
    assert run_by_length(words, 2, run, length=len) == ["CCCC", "A", "BB", "DDDD", "E"]
    assert batches == [["a", "e"], ["bb", "cccc"], ["dddd"]]
    assert run_by_length([], 2, run, length=len) == []
    with pytest.raises(ValueError, match="shorter"):
        run_by_length(words, 2, lambda batch: batch[:1], length=len)


def test_short_audio_is_extended_with_silence():
    audio = np.ones(3, np.float32)
    assert extended(audio, 3) is audio
    assert extended(audio, 5).tolist() == [1, 1, 1, 0, 0]
    assert extended(audio, 5).dtype == np.float32


def test_rows_of_unequal_length_are_stacked():
    rows = [torch.ones(2, 3), torch.full((4, 3), 2.0)]
    padded = pad_rows(rows, -1.0)
    assert padded.shape == (2, 4, 3)
    assert torch.equal(padded[0, :2], rows[0]) and (padded[0, 2:] == -1).all()
    assert torch.equal(padded[1], rows[1])


def test_read_only_samples_become_a_copy():
    audio = np.zeros(4, np.float32)
    as_tensor(audio)[0] = 1.0
    assert audio[0] == 1.0, "samples that may be written to are shared"
    audio.flags.writeable = False
    as_tensor(audio)[1] = 1.0
    assert audio[1] == 0.0
