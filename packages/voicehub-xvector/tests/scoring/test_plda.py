"""PLDA against closed forms: ratios of Gaussian densities, and the optimum for balanced groups."""

from __future__ import annotations

import numpy as np
import pytest

from voicehub.errors import DataError
from voicehub_xvector.metrics import equal_error_rate, operating_points
from voicehub_xvector.scoring import Cosine, Plda, PldaBackend


def covariance(generator, size, scale=1.0):
    root = generator.normal(size=(size, size))
    return scale * (root @ root.T / size + 0.1 * np.eye(size))


def log_density(x, covariance):
    sign, determinant = np.linalg.slogdet(covariance)
    assert sign > 0
    distance = x @ np.linalg.solve(covariance, x)
    return -0.5 * (distance + determinant + len(x) * np.log(2 * np.pi))


def speakers_of(generator, between, within, speakers, each):
    size = len(between)
    centres = generator.multivariate_normal(np.zeros(size), between, speakers)
    rows = np.repeat(centres, each, axis=0)
    rows = rows + generator.multivariate_normal(np.zeros(size), within, len(rows))
    return rows + 5.0, [f"s{n // each}" for n in range(len(rows))]


def test_scores_are_log_ratios_of_the_joint_densities():
    generator = np.random.default_rng(0)
    between, within = covariance(generator, 3), covariance(generator, 3)
    model = Plda(np.array([1.0, -2.0, 0.5]), between, within)
    left, right = generator.normal(size=(4, 3)), generator.normal(size=(4, 3))
    backend = PldaBackend(model)
    one, two = backend.prepare(left), backend.prepare(right)
    total = between + within
    joint = np.block([[total, between], [between, total]])
    expected = np.array(
        [
            [
                log_density(np.concatenate([a - model.mean, b - model.mean]), joint)
                - log_density(a - model.mean, total)
                - log_density(b - model.mean, total)
                for b in right
            ]
            for a in left
        ]
    )
    assert np.allclose(backend.matrix(one, two), expected, rtol=1e-9, atol=1e-9)
    assert np.allclose(backend.pairs(one, two), np.diag(expected), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("each", [2, 5])
def test_em_reaches_the_maximum_for_equally_many_recordings(each):
    """Balanced groups have a closed form: analysis of variance."""
    generator = np.random.default_rng(1)
    between, within = covariance(generator, 3, 4.0), covariance(generator, 3)
    rows, speakers = speakers_of(generator, between, within, 60, each)
    found = Plda.fit(rows, speakers, iterations=400)
    groups = rows.reshape(60, each, 3)
    means = groups.mean(1)
    deviations = (groups - means[:, None]).reshape(-1, 3)
    best_within = deviations.T @ deviations / (60 * (each - 1))
    best_between = np.cov(means.T, bias=True) - best_within / each
    assert np.linalg.eigvalsh(best_between).min() > 0  # the optimum is inside
    assert np.allclose(found.mean, rows.mean(0))
    assert np.allclose(found.within, best_within, rtol=1e-5, atol=1e-7)
    assert np.allclose(found.between, best_between, rtol=1e-4, atol=1e-5)


def likelihood(model, rows, speakers):
    total = 0.0
    for name in sorted(set(speakers)):
        own = np.array([row for row, s in zip(rows, speakers, strict=True) if s == name])
        count = len(own)
        joint = np.kron(np.ones((count, count)), model.between)
        joint += np.kron(np.eye(count), model.within)
        total += log_density((own - model.mean).ravel(), joint)
    return total


def test_every_round_raises_the_likelihood_of_unequal_groups():
    generator = np.random.default_rng(2)
    rows, speakers = speakers_of(
        generator, covariance(generator, 2), covariance(generator, 2), 12, 4
    )
    kept = [n for n in range(48) if n % 5]  # 3 or 4 of each
    rows, speakers = rows[kept], [speakers[n] for n in kept]
    values = [likelihood(Plda.fit(rows, speakers, iterations=n), rows, speakers) for n in range(8)]
    assert (np.diff(values) > -1e-9).all() and values[-1] > values[0]


def test_it_separates_what_the_cosine_does_not():
    generator = np.random.default_rng(3)
    between, within = np.diag([1.0, 1.0, 0.01, 0.01]), np.diag([0.05, 0.05, 3.0, 3.0])
    rows, speakers = speakers_of(generator, between, within, 80, 5)
    test, names = speakers_of(generator, between, within, 30, 5)
    left, right = np.triu_indices(len(test), 1)
    labels = [names[a] == names[b] for a, b in zip(left, right, strict=True)]

    def error(backend):
        prepared = backend.prepare(test)
        return equal_error_rate(
            operating_points(backend.pairs(prepared[left], prepared[right]), labels)
        )

    plda = error(PldaBackend.fit(rows, speakers, length_norm=False))
    assert plda < 0.2 < error(Cosine(rows.mean(0)))


def test_more_dimensions_than_speakers_give_finite_scores():
    generator = np.random.default_rng(4)
    rows = generator.normal(size=(6, 20))
    backend = PldaBackend.fit(rows, ["a", "a", "b", "b", "c", "c"])
    prepared = backend.prepare(generator.normal(size=(4, 20)))
    assert np.isfinite(backend.matrix(prepared, prepared)).all()


def test_too_little_to_fit_is_refused():
    rows = np.eye(3)
    for speakers, message in (
        (["a", "b", "c"], "3 speakers and at most 1 recordings"),
        (["a", "a", "a"], "1 speakers"),
        (["a", "a"], "3 embeddings, but 2 speakers"),
    ):
        with pytest.raises(DataError, match=message):
            Plda.fit(rows, speakers)
