"""All pairs in blocks against the full matrix of scores."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voicehub.errors import DataError
from voicehub_xvector.metrics import (
    PRIORS,
    all_pairs_points,
    equal_error_rate,
    min_dcf,
    operating_points,
    verify_pairs,
)


def draw(seed, count=40, speakers=6, size=5):
    generator = np.random.default_rng(seed)
    names = generator.integers(0, speakers, count)
    centres = generator.normal(size=(speakers, size))
    return centres[names] + generator.normal(size=(count, size)), [f"s{name}" for name in names]


def full_points(embeddings, speakers):
    units = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    left, right = np.triu_indices(len(units), 1)
    labels = [speakers[a] == speakers[b] for a, b in zip(left, right, strict=True)]
    return operating_points((units @ units.T)[left, right], labels)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 999), count=st.integers(4, 60), block=st.integers(1, 70))
def test_blocks_give_the_figures_of_all_scores(seed, count, block):
    embeddings, speakers = draw(seed, count)
    speakers[:3] = ["s0", "s0", "s1"]  # both kinds of pairs
    points = all_pairs_points(embeddings, speakers, block=block)
    every = full_points(embeddings, speakers)
    assert (points.targets, points.nontargets) == (every.targets, every.nontargets)
    assert equal_error_rate(points) == pytest.approx(equal_error_rate(every), abs=1e-9)
    for prior in PRIORS:
        assert min_dcf(points, prior)[0] == pytest.approx(min_dcf(every, prior)[0], abs=1e-9)


def test_the_order_of_the_rows_does_not_matter():
    embeddings, speakers = draw(1)
    order = np.random.default_rng(0).permutation(len(speakers))
    shuffled = verify_pairs(embeddings[order], [speakers[i] for i in order])
    assert shuffled.metrics() == pytest.approx(verify_pairs(embeddings, speakers).metrics())


def test_memory_grows_with_the_block_not_with_the_pairs():
    import tracemalloc

    embeddings, _ = draw(0, count=1500, size=8)
    speakers = [f"s{n // 5}" for n in range(1500)]
    tracemalloc.start()
    verify_pairs(embeddings, speakers)  # 1.1 million pairs: 9 MB as float64
    by_default = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    all_pairs_points(embeddings, speakers, block=64)
    small = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert small < 5e6 < by_default


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda e, s: (e, s[:-1]), "40 embeddings, but 39 speakers"),
        (lambda e, s: (e * (np.arange(40) != 7)[:, None], s), "1 of 40 .* first in row 7"),
        (lambda e, s: (e[0], s), r"must be \(N, D\)"),
        (lambda e, s: (e, [str(n) for n in range(40)]), "got 0 and 780"),
        (lambda e, s: (e, ["one"] * 40), "got 780 and 0"),
    ],
)
def test_what_cannot_be_compared_is_refused(change, message):
    with pytest.raises(DataError, match=message):
        all_pairs_points(*change(*draw(0)))
