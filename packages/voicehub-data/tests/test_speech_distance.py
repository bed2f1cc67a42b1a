"""Time warping against all paths; the cepstral distance against closed forms."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from voicehub.errors import DataError
from voicehub_data.speech_distance import (
    DECIBELS,
    audio_cepstral_distance,
    distance_mel,
    mel_cepstra,
    mel_cepstral_distance,
)
from voicehub_data.time_warping import dynamic_time_warping


def every_path(n: int, m: int) -> Iterator[list[tuple[int, int]]]:
    if (n, m) == (1, 1):
        yield [(0, 0)]
        return
    for i, j in ((n - 1, m - 1), (n - 1, m), (n, m - 1)):
        if i and j:
            for path in every_path(i, j):
                yield [*path, (n - 1, m - 1)]


@pytest.mark.parametrize("ties", [False, True])
def test_the_path_is_the_cheapest_of_all(ties: bool) -> None:
    draw = np.random.default_rng(0)
    for n in range(1, 6):
        for m in range(1, 6):
            cost = draw.integers(0, 3, (n, m)) * 1.0 if ties else draw.random((n, m))
            found = dynamic_time_warping(cost)
            sums = [sum(cost[cell] for cell in path) for path in every_path(n, m)]
            assert found.total == pytest.approx(min(sums), rel=1e-12)
            cells = [tuple(cell) for cell in found.pairs.tolist()]
            assert cells in list(every_path(n, m))
            assert sum(cost[cell] for cell in cells) == pytest.approx(min(sums), rel=1e-12)


def test_a_repeated_sequence_warps_onto_itself_without_cost() -> None:
    values = np.arange(7.0)
    slow = np.repeat(values, 3)
    found = dynamic_time_warping(np.abs(values[:, None] - slow[None, :]))
    assert found.total == 0.0
    assert found.pairs[:, 0].tolist() == slow.tolist()


@pytest.mark.parametrize("cost", [np.zeros((0, 3)), np.zeros(3), np.array([[1.0, math.nan]])])
def test_costs_that_allow_no_path_are_refused(cost: np.ndarray) -> None:
    with pytest.raises(DataError, match="finite costs"):
        dynamic_time_warping(cost)


def test_cepstra_are_the_amplitudes_of_cosines() -> None:
    place = (np.arange(40) + 0.5) / 40
    spectrum = 3.0 + 0.7 * np.cos(2 * np.pi * place) - 0.2 * np.cos(13 * np.pi * place)
    expected = np.zeros(13)
    expected[[1, 12]] = 0.7, -0.2
    np.testing.assert_allclose(mel_cepstra(spectrum[None])[0], expected, atol=1e-14)


def test_a_cosine_of_the_spectrum_costs_its_root_mean_square_in_decibels() -> None:
    draw = np.random.default_rng(1)
    ripple = 0.3 * np.cos(5 * np.pi * (np.arange(80) + 0.5) / 80)
    reference = np.repeat(draw.standard_normal((1, 80)), 30, axis=0)
    found = mel_cepstral_distance(reference, reference + ripple)
    rms = 20 / math.log(10) * math.sqrt((ripple**2).mean())
    assert found.decibels == pytest.approx(rms, rel=1e-12)
    assert found.decibels == pytest.approx(DECIBELS * 0.3, rel=1e-12)


def test_loudness_and_tempo_do_not_count() -> None:
    draw = np.random.default_rng(2)
    reference = draw.standard_normal((25, 80))
    found = mel_cepstral_distance(reference, np.repeat(reference, 2, axis=0) + 1.5)
    assert found.decibels == pytest.approx(0.0, abs=1e-12)
    assert (found.pairs, found.stretch) == (50, 2.0)


def test_it_is_symmetric_and_above_zero() -> None:
    draw = np.random.default_rng(3)
    one, other = draw.standard_normal((20, 40)), draw.standard_normal((31, 40))
    there, back = mel_cepstral_distance(one, other), mel_cepstral_distance(other, one)
    assert there.decibels > 1.0
    assert there.decibels == pytest.approx(back.decibels, rel=1e-9)


@pytest.mark.parametrize("sample_rate", [8000, 16000, 22050, 24000, 44100])
def test_waveforms_are_compared_at_any_rate(sample_rate: int) -> None:
    draw = torch.Generator().manual_seed(0)
    time = torch.arange(sample_rate // 2) / sample_rate
    voice = torch.sin(2 * torch.pi * 150 * time) * (1 + torch.sin(2 * torch.pi * 3 * time))
    noise = torch.randn(len(time), generator=draw)
    same = audio_cepstral_distance(voice, 0.5 * voice, sample_rate)
    near = audio_cepstral_distance(voice, voice + 1e-3 * noise, sample_rate)
    far = audio_cepstral_distance(voice, noise, sample_rate)
    assert same.decibels < near.decibels < far.decibels
    assert distance_mel(16000).n_fft == distance_mel(22050).n_fft == 1024


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(DataError, match="more than 13 mels"):
        mel_cepstra(np.zeros((4, 13)))
    with pytest.raises(DataError, match="equally many mels"):
        mel_cepstral_distance(np.zeros((4, 20)), np.zeros((4, 21)))
    with pytest.raises(DataError, match="equally many mels"):
        mel_cepstral_distance(np.zeros((4, 20)), np.zeros((0, 20)))
    with pytest.raises(DataError, match=r"waveforms \(samples,\)"):
        audio_cepstral_distance(torch.zeros(0), torch.zeros(9), 16000)
