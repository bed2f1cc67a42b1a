"""Power-function averages: widths, profiles, and how stored ones add up."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from voicehub.errors import ConfigurationError
from voicehub.optim.ema import PowerFunctionAverage, share_of_start
from voicehub.optim.power_profiles import (
    WIDEST,
    Profile,
    combine,
    gamma_of,
    inner_product,
    power_decay,
    sigma_rel_of,
    tracked_share,
)

WIDTHS = (0.05, 0.1)


def snapshots(count: int, every: int = 500) -> list[Profile]:
    return [Profile(gamma_of(w), every * (n + 1)) for n in range(count) for w in WIDTHS]


def test_published_exponents() -> None:
    assert gamma_of(0.05) == pytest.approx(16.9722, abs=1e-4)
    assert gamma_of(0.1) == pytest.approx(6.9372, abs=1e-4)
    assert gamma_of(WIDEST) == pytest.approx(0.0, abs=1e-9)


@settings(deadline=None)
@given(st.floats(0.002, WIDEST))
def test_widths_and_exponents_are_inverse(sigma_rel: float) -> None:
    gamma = gamma_of(sigma_rel)
    assert abs(sigma_rel_of(gamma) - sigma_rel) < 1e-9
    inverse = sigma_rel**-2
    terms = (gamma**3, 7 * gamma**2, (16 - inverse) * gamma, 12 - inverse)
    assert abs(sum(terms)) < 1e-9 * inverse * (1 + gamma)


def test_the_width_is_the_deviation_of_the_profile() -> None:
    gamma, tau = gamma_of(0.1), (np.arange(200_000) + 0.5) / 200_000
    density = (gamma + 1) * tau**gamma
    mean = (density * tau).mean()
    assert math.sqrt((density * (tau - mean) ** 2).mean()) == pytest.approx(0.1, abs=1e-6)


@pytest.mark.parametrize("sigma_rel", [0.0, -0.1, 0.3, math.nan])
def test_impossible_widths_are_refused(sigma_rel: float) -> None:
    with pytest.raises(ConfigurationError, match="relative width"):
        gamma_of(sigma_rel)


@pytest.mark.parametrize("sigma_rel", [0.02, 0.05, 0.1, 0.25])
def test_what_is_tracked_is_the_closed_form(sigma_rel: float) -> None:
    """One-hot weights make the average the list of the shares that it holds of each update."""
    updates, gamma = 300, gamma_of(sigma_rel)
    module = torch.nn.Linear(updates + 1, 1, bias=False, dtype=torch.float64)
    average = PowerFunctionAverage(module, {"weight": module.weight}, gamma=gamma)
    for update in range(1, updates + 1):
        with torch.no_grad():
            module.weight.zero_()
            module.weight[0, update] = 1.0
        average.update()
    shares = average.shadows()["weight"][0]
    profile = Profile(gamma, updates)
    expected = torch.tensor([0.0] + [tracked_share(n, profile) for n in range(1, updates + 1)])
    assert (shares - expected.double()).abs().max() < 1e-6
    assert float(shares.sum()) == pytest.approx(1.0, abs=1e-12)
    assert shares[0] == 0.0  # nothing is left of the first weights
    assert average.start_share() == 0.0


def test_inner_products_are_those_of_the_profiles() -> None:
    def density(profile: Profile, tau: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        gamma, updates = profile
        inside = tau <= updates
        return inside * (gamma + 1) * (tau / updates) ** gamma / updates

    tau = (np.arange(1_200_000) + 0.5) / 1_000
    for one in (Profile(16.97, 400), Profile(6.9, 1000)):
        for other in (Profile(2.5, 800), Profile(6.9, 1000), Profile(0.0, 1200)):
            brute = float((density(one, tau) * density(other, tau)).sum() / 1_000)
            assert inner_product(one, other) == pytest.approx(brute, rel=1e-4)
            assert inner_product(one, other) == pytest.approx(inner_product(other, one), rel=1e-12)


@settings(deadline=None)
@given(
    st.integers(1, 24),
    st.floats(0.01, WIDEST),
    st.floats(0.05, 1.0),
)
def test_weights_always_sum_to_one(count: int, sigma_rel: float, part: float) -> None:
    stored = snapshots(count)
    target = Profile(gamma_of(sigma_rel), max(1, round(part * stored[-1].updates)))
    found = combine(stored, target)
    assert math.fsum(found.weights) == pytest.approx(1.0, abs=1e-9)
    assert found.normalised_residual >= found.residual - 1e-6


def test_a_stored_average_is_taken_as_it_is() -> None:
    stored = snapshots(20)
    for position in (0, 7, 39):
        found = combine(stored, stored[position])
        assert found.weights == tuple(float(n == position) for n in range(40))
        assert found.residual == 0.0


def test_published_residuals() -> None:
    def residual(count: int, sigma_rel: float) -> float:
        stored = snapshots(count)
        return combine(stored, Profile(gamma_of(sigma_rel), stored[-1].updates)).residual

    assert residual(1, 0.03) == pytest.approx(0.169, abs=1e-3)
    assert residual(1, 0.075) == pytest.approx(0.044, abs=1e-3)
    assert residual(1, 0.15) == pytest.approx(0.183, abs=1e-3)
    assert residual(20, 0.03) == pytest.approx(0.026, abs=1e-3)
    assert residual(20, 0.075) == pytest.approx(0.002, abs=5e-4)


def test_a_width_between_the_tracked_ones_from_twenty_snapshots() -> None:
    """Against the average that would have been tracked: a random walk of weights, every update."""
    every, count = 50, 20
    updates, gammas = every * count, [gamma_of(w) for w in WIDTHS]
    target = gamma_of(0.075)
    walk = torch.randn(updates, 64, generator=torch.Generator().manual_seed(3)).double()
    walk = walk.cumsum(0) + 5.0
    tracked = [torch.zeros(64).double() for _ in (*gammas, target)]
    stored, tensors = [], []
    for update, weights in enumerate(walk):
        for average, gamma in zip(tracked, (*gammas, target), strict=True):
            average.lerp_(weights, 1.0 - power_decay(update, gamma))
        if (update + 1) % every == 0:
            stored += [Profile(gamma, update + 1) for gamma in gammas]
            tensors += [average.clone() for average in tracked[:2]]
    found = combine(stored, Profile(target, updates))
    made = sum(w * t for w, t in zip(found.weights, tensors, strict=True))
    assert float((made - tracked[2]).norm() / tracked[2].norm()) < 1e-3


def test_nothing_stored_and_twice_stored_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="no stored average"):
        combine([], Profile(1.0, 5))
    with pytest.raises(ConfigurationError, match="twice"):
        combine([Profile(2.0, 5), Profile(2.0, 5)], Profile(1.0, 5))


@pytest.mark.parametrize("warmup", [True, False])
@pytest.mark.parametrize("decay", [0.0, 0.5, 0.9, 0.999])
def test_the_share_of_the_start_is_the_product_of_the_decays(decay: float, warmup: bool) -> None:
    product = 1.0
    for update in range(400):
        assert share_of_start(update, decay, warmup=warmup) == pytest.approx(product, rel=1e-9)
        product *= min(decay, (1 + update) / (10 + update)) if warmup else decay
