"""Conditions are dropped at their rates, together or apart as the policy says."""

from __future__ import annotations

import math

import pytest
import torch

from voicehub.data.keyed_random import torch_generator
from voicehub_flow.objective import AudioVisualNull, InfillNull

COUNT = 100_000
#: Of chi-squared with one degree of freedom, passed by one in 1,000.
CHI_SQUARED = 10.83


def within(drawn, rate):
    """Whether a share lies within three standard deviations of its rate."""
    return abs(float(drawn.double().mean()) - rate) < 3 * math.sqrt(rate * (1 - rate) / COUNT)


def chi_squared(one, two):
    """Statistic of independence of two sets of booleans."""
    total = 0.0
    for first in (one, ~one):
        for second in (two, ~two):
            expected = float(first.sum()) * float(second.sum()) / COUNT
            total += (float((first & second).sum()) - expected) ** 2 / expected
    return total


def test_video_goes_together_and_text_apart():
    drops = AudioVisualNull(0.1).draw(COUNT, torch_generator("null"))
    assert torch.equal(drops.clip, drops.sync)
    assert within(drops.clip, 0.1) and within(drops.text, 0.1)
    assert chi_squared(drops.clip, drops.text) < CHI_SQUARED
    assert chi_squared(drops.clip, drops.sync) > CHI_SQUARED


def test_audio_goes_alone_or_with_the_text():
    drops = InfillNull(0.3, 0.2).draw(COUNT, torch_generator("infill"))
    assert within(drops.text, 0.2) and within(drops.audio, 1 - 0.7 * 0.8)
    assert bool(drops.audio[drops.text].all())
    alone = drops.audio & ~drops.text
    assert within(alone, 0.3 * 0.8)


@pytest.mark.parametrize("policy", [InfillNull(1.0, 1.0), AudioVisualNull(1.0)])
def test_nothing_is_dropped_in_evaluation(policy):
    assert all(bool(drawn.all()) for drawn in policy.draw(50))
    assert not any(bool(drawn.any()) for drawn in policy.draw(50, training=False))
