"""Silence in place of speech: how often, how loud, and the same for the same draw."""

from __future__ import annotations

import math

import numpy as np
import pytest

from voicehub.data.keyed_random import SampleKey
from voicehub.errors import ConfigurationError
from voicehub_data.augment import SilenceInjection, silence_injection
from voicehub_data.config import SilenceConfig

RATE = 16000
DRAWS = 4000


def key(draw):
    return SampleKey(7, 0, draw, draw)


@pytest.mark.parametrize("rate", [0.05, 0.3])
def test_rate(rate):
    silence = SilenceInjection(rate)
    count = sum(silence.takes(key(draw), f"u{draw}") for draw in range(DRAWS))
    sigma = math.sqrt(DRAWS * rate * (1 - rate))
    assert abs(count - DRAWS * rate) <= 3 * sigma


def test_level_is_within_the_range_and_some_is_nothing():
    silence = SilenceInjection(0.5, level=(-60.0, -40.0))
    levels = []
    for draw in range(200):
        audio = silence.audio(1600, RATE, key(draw), "u")
        assert audio.shape == (1600,)
        assert audio.dtype == np.float32
        power = float(np.mean(audio.astype(np.float64) ** 2))
        levels.append(10 * math.log10(power) if power else None)
    heard = [level for level in levels if level is not None]
    assert 0 < levels.count(None) < 60
    assert min(heard) >= -60.01
    assert max(heard) <= -39.99
    assert max(heard) - min(heard) > 15


def test_recorded_noise(tmp_path, write_audio):
    write_audio("noise/hum.wav", 2.0, RATE)
    silence = SilenceInjection(0.5, folder=str(tmp_path / "noise"))
    kurtosis = []
    for draw in range(30):
        audio = silence.audio(8000, RATE, key(draw), "u").astype(np.float64)
        if audio.any():
            kurtosis.append(float(np.mean(audio**4) / np.mean(audio**2) ** 2))
    # White noise has 3; the recording, a swelling tone, has another.
    white = sum(abs(value - 3.0) < 0.2 for value in kurtosis)
    assert 5 <= white <= len(kurtosis) - 5


def test_equal_draws_are_equal_and_others_are_not():
    one, two = SilenceInjection(0.5), SilenceInjection(0.5)
    for draw in range(20):
        assert one.takes(key(draw), "u") == two.takes(key(draw), "u")
        audio = one.audio(100, RATE, key(draw), "u")
        assert np.array_equal(audio, two.audio(100, RATE, key(draw), "u"))
    assert not np.array_equal(one.audio(100, RATE, key(1), "u"), one.audio(100, RATE, key(1), "v"))


def test_settings():
    assert silence_injection(SilenceConfig()) is None
    built = silence_injection(SilenceConfig(rate=0.1))
    assert built is not None
    assert built.fingerprint()["rate"] == 0.1
    for rate, level in ((1.0, (-60, -40)), (-0.1, (-60, -40)), (0.1, (-40, -60)), (0.1, (-9, 3))):
        with pytest.raises(ConfigurationError, match="silence"):
            SilenceInjection(rate, level)
    with pytest.raises(ConfigurationError, match="level"):
        SilenceConfig.load({"rate": 0.1, "level": [-30, -50]})
