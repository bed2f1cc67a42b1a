"""Closed forms of the path from noise to data."""

from __future__ import annotations

import pytest
import torch

from voicehub_flow.objective import interpolate, velocity


@pytest.fixture
def ends():
    generator = torch.Generator().manual_seed(3)
    return tuple(torch.randn(4, 5, 2, generator=generator, dtype=torch.float64) for _ in range(2))


@pytest.mark.parametrize("min_sigma", [0.0, 1e-4, 0.1])
def test_the_path_begins_at_the_noise_and_ends_at_the_data(ends, min_sigma):
    noise, data = ends
    assert torch.equal(interpolate(noise, data, torch.zeros(4), min_sigma), noise)
    at_one = interpolate(noise, data, torch.ones(4), min_sigma)
    torch.testing.assert_close(at_one, data + min_sigma * noise, rtol=0, atol=1e-12)


@pytest.mark.parametrize("min_sigma", [0.0, 0.1])
def test_the_velocity_is_the_derivative_of_the_path(ends, min_sigma):
    noise, data = ends
    time = torch.tensor([0.0, 0.2, 0.7, 1.0], dtype=torch.float64)
    _, derivative = torch.func.jvp(
        lambda t: interpolate(noise, data, t, min_sigma), (time,), (torch.ones_like(time),)
    )
    torch.testing.assert_close(derivative, velocity(noise, data, min_sigma), rtol=0, atol=1e-6)


def test_each_item_has_its_own_time(ends):
    noise, data = ends
    time = torch.tensor([0.1, 0.9, 0.5, 0.3], dtype=torch.float64)
    whole = interpolate(noise, data, time)
    for row in range(4):
        alone = interpolate(noise[row : row + 1], data[row : row + 1], time[row : row + 1])
        assert torch.equal(whole[row], alone[0])
