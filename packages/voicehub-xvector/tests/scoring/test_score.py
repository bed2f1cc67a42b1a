"""Scores of trials, and their normalisation by a cohort."""

from __future__ import annotations

import numpy as np
import pytest

from voicehub.errors import ConfigurationError, DataError
from voicehub_xvector.embeddings import EmbeddingTable
from voicehub_xvector.scoring import Cosine, cohort_statistics, read_trials, score_trials


def draw(seed, prefix, count, size=6):
    vectors = np.random.default_rng(seed).normal(size=(count, size)).astype(np.float32)
    return EmbeddingTable.of([f"{prefix}{n}" for n in range(count)], vectors)


@pytest.fixture
def trials(tmp_path):
    path = tmp_path / "trials.txt"
    path.write_text("1 a0 a3\n0 a3 a1\n0 a2 a0\n1 a1 a1\n")
    return read_trials(path)


def cosine(left, right):
    return float(left @ right / np.linalg.norm(left) / np.linalg.norm(right))


def test_cosines_in_the_order_of_the_list(trials, tmp_path):
    table = draw(0, "a", 5)
    vectors = table.vectors.astype(np.float64)
    scored = score_trials(trials, table, Cosine())
    expected = [cosine(vectors[a], vectors[b]) for a, b in ((0, 3), (3, 1), (2, 0), (1, 1))]
    assert scored.scores == pytest.approx(expected, abs=1e-12)
    scored.write(tmp_path / "out/scores.txt")
    rows = [line.split() for line in (tmp_path / "out/scores.txt").read_text().splitlines()]
    assert [row[:2] for row in rows] == [["a0", "a3"], ["a3", "a1"], ["a2", "a0"], ["a1", "a1"]]
    assert [float(row[2]) for row in rows] == pytest.approx(expected, abs=1e-8)
    assert 0 <= scored.verification().eer <= 0.5


def test_a_mean_is_taken_off_first(trials):
    table = draw(0, "a", 5)
    mean = table.vectors.mean(0)
    scored = score_trials(trials, table, Cosine(mean))
    first = cosine(table.vectors[0] - mean, table.vectors[3] - mean)
    assert scored.scores[0] == pytest.approx(first, abs=1e-6)


def test_as_norm_is_its_formula(trials):
    table, cohort = draw(0, "a", 5), draw(1, "c", 40)
    scored = score_trials(trials, table, Cosine(), cohort=cohort, top=7)
    raw = score_trials(trials, table, Cosine()).scores

    def statistics(vector):
        best = sorted((cosine(vector, other) for other in cohort.vectors), reverse=True)[:7]
        mean = sum(best) / 7
        return mean, (sum((value - mean) ** 2 for value in best) / 7) ** 0.5

    pairs = ((0, 3), (3, 1), (2, 0), (1, 1))
    for score, value, (a, b) in zip(scored.scores, raw, pairs, strict=True):
        (ma, da), (mb, db) = statistics(table.vectors[a]), statistics(table.vectors[b])
        assert score == pytest.approx(0.5 * ((value - ma) / da + (value - mb) / db), rel=1e-5)


def test_statistics_do_not_depend_on_the_blocks():
    backend, rows, cohort = Cosine(), draw(2, "a", 23), draw(3, "c", 31)
    prepared, others = backend.prepare(rows.vectors), backend.prepare(cohort.vectors)
    whole = cohort_statistics(backend, prepared, others, top=5)
    parts = cohort_statistics(backend, prepared, others, top=5, block=4)
    assert np.allclose(whole.means, parts.means) and np.allclose(whole.deviations, parts.deviations)


def test_cohorts_that_cannot_normalise_are_refused(trials):
    table, cohort = draw(0, "a", 5), draw(1, "c", 10)
    with pytest.raises(DataError, match="The cohort holds 4 recordings of the trials, 'a0'"):
        score_trials(trials, table, Cosine(), cohort=table)
    with pytest.raises(ConfigurationError, match="top is 1"):
        score_trials(trials, table, Cosine(), cohort=cohort, top=1)
    same = EmbeddingTable.of(["x", "y"], np.ones((2, 6), np.float32))
    with pytest.raises(DataError, match="are all equal"):
        score_trials(trials, table, Cosine(), cohort=same)


def test_an_unlabelled_list_has_no_error_rate(tmp_path):
    path = tmp_path / "trials.txt"
    path.write_text("a0 a1\n")
    assert score_trials(read_trials(path), draw(0, "a", 2), Cosine()).verification() is None
