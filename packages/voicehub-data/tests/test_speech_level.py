"""Silence is cut to its margin, levels are what they are said to be, peaks never clip."""

from __future__ import annotations

import numpy as np
import pytest

from voicehub_data.speech_level import set_speech_level, speech_level, trim_silence

RATE = 8000


def tone(seconds: float, amplitude: float) -> np.ndarray:
    time = np.arange(round(seconds * RATE)) / RATE
    return (amplitude * np.sin(2 * np.pi * 440 * time)).astype(np.float32)


def silence(seconds: float) -> np.ndarray:
    return np.zeros(round(seconds * RATE), dtype=np.float32)


def test_silence_at_both_ends_is_cut_to_the_margin() -> None:
    audio = np.concatenate([silence(0.5), tone(1.0, 0.3), silence(0.2), tone(0.3, 0.2), silence(1)])
    kept = trim_silence(audio, RATE, margin=0.05)
    # The pause inside stays; a frame of 25 ms may begin before the speech.
    assert len(kept) / RATE == pytest.approx(1.5 + 2 * 0.05, abs=0.04)
    assert np.shares_memory(kept, audio)
    louder = trim_silence(audio, RATE, threshold_db=2.0, margin=0.0)
    assert len(louder) / RATE == pytest.approx(1.0, abs=0.03)


def test_noise_under_the_threshold_is_silence() -> None:
    noise = 1e-4 * np.random.default_rng(0).standard_normal(RATE).astype(np.float32)
    audio = np.concatenate([noise, tone(0.5, 0.5), noise])
    assert len(trim_silence(audio, RATE, margin=0.0)) / RATE == pytest.approx(0.5, abs=0.05)
    assert len(trim_silence(audio, RATE, threshold_db=90.0)) == len(audio)


def test_nothing_but_silence_is_left_alone() -> None:
    audio = silence(0.3)
    assert trim_silence(audio, RATE) is audio
    assert set_speech_level(audio, RATE, -20.0) is audio
    assert speech_level(audio, RATE) == float("-inf")
    empty = silence(0.0)
    assert len(trim_silence(empty, RATE)) == len(set_speech_level(empty, RATE, -20.0)) == 0


def test_levels_are_those_of_the_speech_alone() -> None:
    speech = tone(1.0, 0.1)
    expected = 20 * np.log10(0.1 / np.sqrt(2))
    assert speech_level(speech, RATE) == pytest.approx(expected, abs=0.05)
    with_pauses = np.concatenate([speech, silence(3.0)])
    assert speech_level(with_pauses, RATE) == pytest.approx(expected, abs=0.2)
    louder = set_speech_level(with_pauses, RATE, -23.0)
    assert louder.dtype == np.float32
    assert speech_level(louder, RATE) == pytest.approx(-23.0, abs=0.05)


def test_a_gain_never_clips() -> None:
    audio = tone(1.0, 0.01)
    audio[4000] = 0.9
    raised = set_speech_level(audio, RATE, -6.0)
    assert np.abs(raised).max() == pytest.approx(0.99, abs=1e-6)


def test_clips_shorter_than_a_frame() -> None:
    audio = tone(0.01, 0.3)
    assert len(trim_silence(audio, RATE)) == len(audio)
    assert speech_level(audio, RATE) == pytest.approx(20 * np.log10(0.3 / 2**0.5), abs=0.6)
