"""Guidance and solvers against closed forms."""

from __future__ import annotations

import math

import pytest
import torch

from voicehub_flow.objective import interpolate, velocity
from voicehub_flow.solvers import guided, integrate, solver_times


@pytest.fixture
def ends():
    generator = torch.Generator().manual_seed(5)
    return tuple(torch.randn(2, 6, 3, generator=generator) for _ in range(2))


def test_guidance_one_is_the_condition_and_zero_the_null(ends):
    conditional, null = ends
    assert torch.equal(guided(conditional, null, 1.0), conditional)
    assert torch.equal(guided(conditional, null, 0.0), null)
    # The strength of F5-TTS is one less.
    torch.testing.assert_close(
        guided(conditional, null, 3.0), conditional + 2.0 * (conditional - null)
    )


@pytest.mark.parametrize("method", ["euler", "midpoint"])
@pytest.mark.parametrize("steps", [1, 25])
@pytest.mark.parametrize("sway", [0.0, -1.0])
def test_an_oracle_leads_to_the_data(ends, method, steps, sway):
    noise, data = ends
    seen = []

    def oracle(t, x):
        assert t.shape == ()
        seen.append(float(t))
        torch.testing.assert_close(x, interpolate(noise, data, t.expand(2)), rtol=0, atol=1e-4)
        return velocity(noise, data)

    found = integrate(oracle, noise, method=method, steps=steps, sway=sway)
    torch.testing.assert_close(found, data, rtol=0, atol=1e-5)
    assert len(seen) == steps * (1 if method == "euler" else 2)
    assert seen[0] == 0.0 and max(seen) < 1.0


@pytest.mark.parametrize("method, order", [("euler", 1), ("midpoint", 2)])
def test_methods_have_their_order(method, order):
    """dx/dt = x leads from 1 to e."""
    start = torch.ones(1, dtype=torch.float64)
    errors = [
        abs(float(integrate(lambda t, x: x, start, method=method, steps=steps)) - math.e)
        for steps in (20, 40)
    ]
    assert errors[0] / errors[1] == pytest.approx(2**order, rel=0.1)


def test_sway_moves_steps_towards_the_noise():
    even, swayed = solver_times(8), solver_times(8, sway=-1.0)
    assert even.tolist() == pytest.approx([n / 8 for n in range(9)])
    assert float(swayed[0]) == 0.0 and float(swayed[-1]) == 1.0
    assert bool((swayed.diff() > 0).all()) and bool((swayed[1:-1] < even[1:-1]).all())
    assert float(swayed[4]) == pytest.approx(1 - math.cos(math.pi / 4))


def test_wrong_settings_are_refused(ends):
    with pytest.raises(ValueError, match="at least one step"):
        integrate(lambda t, x: x, ends[0], steps=0)
    with pytest.raises(ValueError, match="unknown method"):
        integrate(lambda t, x: x, ends[0], method="heun")
