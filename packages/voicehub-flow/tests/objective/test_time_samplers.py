"""Times have the distribution that their name says."""

from __future__ import annotations

import math

import pytest
import torch

from voicehub.data.keyed_random import torch_generator
from voicehub_flow.objective import (
    LogitNormalTime,
    TimeBins,
    UniformTime,
    loss_by_time,
    time_rows,
)

COUNT = 20_000
#: Kolmogorov's statistic that a right sampler stays under in 999 of 1,000 runs.
LIMIT = 1.95 / math.sqrt(COUNT)


def kolmogorov(drawn, cumulative):
    """Largest distance of the empirical distribution from the given one."""
    sorted_, count = drawn.double().sort().values, len(drawn)
    expected = cumulative(sorted_)
    above = torch.arange(1, count + 1) / count - expected
    below = expected - torch.arange(count) / count
    return float(torch.maximum(above, below).max())


def logistic_normal(mean, scale):
    return lambda t: 0.5 * (1 + torch.erf((torch.logit(t) - mean) / (scale * math.sqrt(2))))


@pytest.mark.parametrize("mean, scale", [(0.0, 1.0), (-0.8, 0.6), (1.2, 1.7)])
def test_logit_normal_times(mean, scale):
    drawn = LogitNormalTime(mean, scale).sample(COUNT, torch_generator("times", mean, scale))
    assert drawn.dtype == torch.float32 and drawn.shape == (COUNT,)
    assert kolmogorov(drawn, logistic_normal(mean, scale)) < LIMIT
    assert kolmogorov(drawn, logistic_normal(mean + 0.2, scale)) > LIMIT


def test_uniform_times():
    drawn = UniformTime().sample((COUNT // 2, 2), torch_generator("uniform")).flatten()
    assert kolmogorov(drawn, lambda t: t) < LIMIT


def test_a_key_decides_the_draw():
    first, second = (UniformTime().sample(3, torch_generator("k", 1)) for _ in range(2))
    assert torch.equal(first, second)


def test_a_scale_of_nothing_is_refused():
    with pytest.raises(ValueError, match="scale"):
        LogitNormalTime(0.0, 0.0)


def test_bins_take_errors_by_time():
    bins = TimeBins()
    time = torch.tensor([0.0, 0.039, 0.041, 1.0])
    bins.add(time, torch.tensor([2.0, 4.0, 3.0, 8.0]), torch.tensor([1.0, 2.0, 3.0, 2.0]))
    assert bins.means() == {"t0.00": 2.0, "t0.04": 1.0, "t0.96": 4.0}


def test_gathered_rows_give_the_loss_by_time():
    time, counts = torch.tensor([0.05, 0.06, 1.0]), torch.tensor([2, 6, 5])
    rows = time_rows(time, torch.tensor([4.0, 8.0, 10.0]), counts)
    assert rows[1] == (float(time[1]), 8.0, 6.0)
    assert loss_by_time(rows) == {"loss_t0.04": 1.5, "loss_t0.96": 2.0}
    assert loss_by_time([]) == {}
