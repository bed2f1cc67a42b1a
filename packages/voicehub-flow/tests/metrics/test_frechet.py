"""Frechet distances against closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voicehub.errors import DataError
from voicehub_flow.metrics.embeddings import LOG_MEL_BINS, log_mel_embedding
from voicehub_flow.metrics.frechet import Gaussian, frechet_distance, gaussian_of


def gaussian(mean: list[float], covariance: np.ndarray) -> Gaussian:  # type: ignore[type-arg]
    return Gaussian(np.asarray(mean, float), np.asarray(covariance, float), 10)


def random_covariance(seed: int, size: int = 5) -> np.ndarray:  # type: ignore[type-arg]
    root = np.random.default_rng(seed).normal(size=(size, size))
    return root @ root.T


def test_axis_aligned_gaussians() -> None:
    """Variances s_i and t_i: sum of (m_i - n_i)^2 + (sqrt s_i - sqrt t_i)^2."""
    one = gaussian([0.0, 1.0, -2.0], np.diag([1.0, 4.0, 0.25]))
    other = gaussian([3.0, 1.0, -1.0], np.diag([9.0, 1.0, 0.0]))
    expected = 9.0 + 0.0 + 1.0 + (3.0 - 1.0) ** 2 + (1.0 - 2.0) ** 2 + 0.5**2
    assert frechet_distance(one, other) == pytest.approx(expected, rel=1e-12)


@settings(deadline=None)
@given(st.integers(0, 2**31), st.floats(0.1, 5.0))
def test_a_scaled_gaussian(seed: int, scale: float) -> None:
    """C and k^2 C commute: the distance is (k - 1)^2 tr C."""
    covariance = random_covariance(seed)
    found = frechet_distance(
        gaussian([0.0] * 5, covariance), gaussian([0.0] * 5, scale**2 * covariance)
    )
    assert found == pytest.approx((scale - 1.0) ** 2 * np.trace(covariance), rel=1e-6, abs=1e-6)


@settings(deadline=None)
@given(st.integers(0, 2**31))
def test_symmetric_and_unchanged_by_a_rotation(seed: int) -> None:
    rng = np.random.default_rng(seed)
    one, other = random_covariance(seed), random_covariance(seed + 1)
    means = rng.normal(size=(2, 5))
    turn, _ = np.linalg.qr(rng.normal(size=(5, 5)))
    pair = gaussian(means[0], one), gaussian(means[1], other)
    turned = (
        gaussian(turn @ means[0], turn @ one @ turn.T),
        gaussian(turn @ means[1], turn @ other @ turn.T),
    )
    found = frechet_distance(*pair)
    assert frechet_distance(*reversed(pair)) == pytest.approx(found, rel=1e-6, abs=1e-6)
    assert frechet_distance(*turned) == pytest.approx(found, rel=1e-6, abs=1e-6)


def test_equal_sets_are_at_no_distance_also_with_fewer_points_than_dimensions() -> None:
    points = np.random.default_rng(0).normal(size=(6, 20))
    one = gaussian_of(points)
    assert one.count == 6 and one.covariance.dtype == np.float64
    assert frechet_distance(one, one) == pytest.approx(0.0, abs=1e-5)
    moved = gaussian_of(points + 2.0)
    assert frechet_distance(one, moved) == pytest.approx(4.0 * 20, rel=1e-6)


def test_against_the_matrix_square_root() -> None:
    scipy = pytest.importorskip("scipy.linalg")
    one, other = random_covariance(3), random_covariance(4)
    root = scipy.sqrtm(one @ other).real
    expected = np.trace(one + other - 2 * root)
    found = frechet_distance(gaussian([0.0] * 5, one), gaussian([0.0] * 5, other))
    assert found == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("points", [np.zeros((1, 3)), np.zeros(4), np.full((3, 2), np.nan)])
def test_what_has_no_covariance_is_refused(points: np.ndarray) -> None:  # type: ignore[type-arg]
    with pytest.raises(DataError, match="Frechet distance"):
        gaussian_of(points)
    with pytest.raises(DataError, match="2 and of 3 dimensions"):
        frechet_distance(gaussian_of(np.zeros((3, 2))), gaussian_of(np.zeros((3, 3))))


def test_speech_is_nearer_to_speech_than_to_noise() -> None:
    rng = np.random.default_rng(1)
    time = np.arange(8000) / 8000
    hums = [np.sin(2 * np.pi * (200 + 10 * n) * time).astype(np.float32) for n in range(4)]
    noise = [rng.normal(scale=0.3, size=8000).astype(np.float32) for _ in range(2)]
    some, others = log_mel_embedding(hums[:2], 8000), log_mel_embedding(hums[2:], 8000)
    hiss = log_mel_embedding(noise, 8000)
    assert some.shape == (126, LOG_MEL_BINS)
    near = frechet_distance(gaussian_of(some), gaussian_of(others))
    assert near < frechet_distance(gaussian_of(some), gaussian_of(hiss)) / 5
