"""The built-in vocoder, and how settings are compared."""

from __future__ import annotations

import math

import pytest
import torch

from voicehub.errors import ConfigurationError, DataError
from voicehub_flow.mel import MelSettings
from voicehub_flow.vocoders.loading import load_vocoder
from voicehub_flow.vocoders.settings import VocoderSettings

MEL = MelSettings(sample_rate=8000, n_fft=256, hop_length=96, n_mels=40)


def _tones(seconds: float = 0.5) -> torch.Tensor:
    time = torch.arange(int(8000 * seconds)) / 8000
    return 0.3 * torch.sin(2 * math.pi * 440 * time) + 0.1 * torch.sin(2 * math.pi * 1320 * time)


def test_frames_come_back() -> None:
    vocoder = load_vocoder(VocoderSettings(), MEL)
    frames = MEL.build()(_tones())
    wave = vocoder(frames)
    assert wave.shape == ((len(frames) - 1) * 96,)
    assert wave.dtype == torch.float32 and vocoder.sampling_rate == 8000
    again = MEL.build()(wave)
    loud = frames[2:-2] > 1.0  # the tones; beside them little is left to rebuild
    assert (again[2:-2] - frames[2:-2])[loud].abs().mean() < 0.25


def test_equal_frames_give_equal_speech_and_seeds_differ() -> None:
    frames = MEL.build()(_tones(0.2))
    first, second = (load_vocoder(VocoderSettings(), MEL)(frames) for _ in range(2))
    other = load_vocoder(VocoderSettings(seed=1), MEL)(frames)
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("frames", [torch.zeros(5, 39), torch.zeros(0, 40), torch.zeros(40)])
def test_frames_of_another_shape_are_refused(frames: torch.Tensor) -> None:
    with pytest.raises(DataError, match="griffin-lim.*40"):
        load_vocoder(VocoderSettings(), MEL)(frames)


def test_frames_that_are_not_finite_are_refused() -> None:
    frames = torch.zeros(5, 40)
    frames[2, 3] = math.nan
    with pytest.raises(DataError, match="not finite"):
        load_vocoder(VocoderSettings(), MEL)(frames)


def test_one_frame_is_a_sound_of_a_hop() -> None:
    assert load_vocoder(VocoderSettings(), MEL)(torch.zeros(1, 40)).shape == (96,)


def test_settings_that_contradict_themselves_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="needs path"):
        VocoderSettings.load({"name": "vocos"})
    with pytest.raises(ConfigurationError, match="built in"):
        VocoderSettings.load({"path": "somewhere"})
    with pytest.raises(ConfigurationError, match="Did you mean 'iterations'"):
        VocoderSettings.load({"iteration": 3})
    with pytest.raises(ConfigurationError, match="hop_length 300"):
        MelSettings.load({"n_fft": 256, "hop_length": 300})
