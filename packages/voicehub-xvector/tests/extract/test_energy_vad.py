"""Speech and silence by energy."""

from __future__ import annotations

import numpy as np
import pytest

from voicehub_xvector.extract.energy_vad import keep_speech, speech_frames

RATE = 8000


def test_noise_between_silences_is_found():
    generator = np.random.default_rng(0)
    audio = 1e-5 * generator.standard_normal(3 * RATE).astype(np.float32)
    audio[RATE : 2 * RATE] += 0.1 * generator.standard_normal(RATE).astype(np.float32)
    speech = speech_frames(audio, RATE)
    assert len(speech) == 1 + (3 * RATE - 200) // 80
    assert speech[104:196].all() and not speech[:96].any() and not speech[204:].any()
    assert len(keep_speech(audio, RATE)) == pytest.approx(RATE, abs=0.06 * RATE)


def test_a_recording_that_is_speech_throughout_is_kept_to_its_last_sample():
    audio = 0.1 * np.random.default_rng(1).standard_normal(RATE + 37).astype(np.float32)
    assert np.array_equal(keep_speech(audio, RATE), audio)


@pytest.mark.parametrize("samples", [0, 100])
def test_what_is_shorter_than_a_window_holds_no_frame(samples):
    assert len(keep_speech(np.ones(samples, np.float32), RATE)) == 0


def test_digital_silence_holds_no_speech():
    assert not speech_frames(np.zeros(RATE, np.float32), RATE).any()
