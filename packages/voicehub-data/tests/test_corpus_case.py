"""Cases with recordings: files, rows and exchanged targets."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from voicehub_data.corpus_case import CorpusCase, exchanged
from voicehub_data.synthetic.tones import spelt_by_tones


class Case(CorpusCase):
    model_type = "none"
    sample_rate = 8000

    def wrapper(self, dropout):
        raise NotImplementedError

    def item(self, length, seed):
        raise NotImplementedError


class Pair(NamedTuple):
    sound: str
    text: str
    label: int


def test_recordings_are_files_of_the_case():
    case = Case()
    audio = spelt_by_tones("ab", {"a": 300.0, "b": 700.0}, 0.1, 8000, np.random.default_rng(0))
    row = case.recorded("one", audio, "ab", speaker="x", row=3)
    assert (row.id, row.text, row.duration, row.speaker, row.row) == ("one", "ab", 0.2, "x", 3)
    assert np.array_equal(case.read_audio(row.audio_filepath), audio)
    folder = case.directory
    assert row.audio_filepath.parent == folder
    del case
    assert not folder.exists()


def test_letters_are_tones_at_their_level():
    noise = np.random.default_rng(0)
    audio = spelt_by_tones("ba", {"a": 500.0, "b": 1000.0}, 0.1, 8000, noise, pitch=2.0)
    assert audio.dtype == np.float32 and len(audio) == 1600
    for part, frequency in ((audio[:800], 2000), (audio[800:], 1000)):
        assert np.abs(np.fft.rfft(part)).argmax() * 10 == frequency
        assert np.abs(part).max() == pytest.approx(0.3, abs=0.02)


def test_fields_are_those_of_the_next():
    pairs = [Pair("A", "a", 1), Pair("B", "b", 2), Pair("C", "c", 3)]
    assert exchanged(pairs, "text", "label") == [
        Pair("A", "b", 2), Pair("B", "c", 3), Pair("C", "a", 1)
    ]  # fmt: skip
