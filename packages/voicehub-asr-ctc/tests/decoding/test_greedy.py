"""Best-path decoding."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from voicehub.errors import DataError
from voicehub_asr_ctc.decoding import greedy


def one_hot_logits(path: list[int], size: int) -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.tensor(path), size).float() * 20


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30), st.integers(0, 4))
def test_merges_repeats_and_drops_blanks(path, blank):
    (alignment,) = greedy(one_hot_logits(path, 5)[None], blank=blank)
    runs = [(token, len(list(run))) for token, run in itertools.groupby(path)]
    ends = list(itertools.accumulate(length for _, length in runs))
    spoken = [
        (token, end - length, end)
        for (token, length), end in zip(runs, ends, strict=True)
        if token != blank
    ]
    found = zip(alignment.ids, alignment.frames, alignment.ends, strict=True)
    assert list(found) == spoken


def test_confidence_is_the_mean_probability_of_the_tokens_frames():
    probabilities = torch.tensor([[[0.2, 0.8], [0.4, 0.6], [0.9, 0.1]]])
    (alignment,) = greedy(probabilities.log())
    assert alignment.ids == (1,)
    assert alignment.confidence == pytest.approx((0.7,))
    assert alignment.score == pytest.approx(math.log(0.8 * 0.6 * 0.9))


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_logits_and_log_probabilities_decode_alike(seed):
    logits = torch.randn(3, 17, 6, generator=torch.Generator().manual_seed(seed)) * 4
    from_logits, from_log_probs = greedy(logits), greedy(logits.log_softmax(-1))
    for a, b in zip(from_logits, from_log_probs, strict=True):
        assert (a.ids, a.frames, a.ends) == (b.ids, b.frames, b.ends)
        assert a.confidence == pytest.approx(b.confidence, rel=1e-4)
        assert all(0 < value <= 1 for value in a.confidence)


def test_frames_behind_the_length_are_not_read():
    logits = one_hot_logits([1, 0, 2, 2, 3, 3], 4).repeat(2, 1, 1)
    logits[1, 3:] = math.nan
    long, short = greedy(logits, torch.tensor([6, 3]))
    assert long.ids == (1, 2, 3)
    assert short.ids == (1, 2)
    assert short.ends[-1] == 3
    assert greedy(logits[1:, :3]) == [short]


def test_an_utterance_of_no_frames_is_empty():
    (alignment,) = greedy(torch.zeros(1, 4, 3), [0])
    assert alignment.ids == ()
    assert alignment.score == 0.0


def test_half_precision_decodes():
    logits = one_hot_logits([1, 1, 0, 2], 3)[None].to(torch.bfloat16)
    assert greedy(logits)[0].ids == (1, 2)


def test_nan_in_a_valid_frame_names_utterance_and_frame():
    logits = torch.zeros(2, 5, 3)
    logits[1, 3, 0] = math.nan
    with pytest.raises(DataError, match="Utterance 1 .*frame 3"):
        greedy(logits)


@pytest.mark.parametrize("lengths", [[1], [1, 9], [-1, 2]])
def test_lengths_must_fit_the_batch(lengths):
    with pytest.raises(DataError, match="lengths"):
        greedy(torch.zeros(2, 5, 3), lengths)


def test_shape_and_blank_are_checked():
    with pytest.raises(DataError, match=r"\(B, T, V\)"):
        greedy(torch.zeros(5, 3))
    with pytest.raises(DataError, match="blank"):
        greedy(torch.zeros(1, 5, 3), blank=3)


def test_the_best_path_scores_at_most_its_labels(brute_force, draw_log_probs):
    log_probs = draw_log_probs(5, 3, seed=7)
    (alignment,) = greedy(torch.from_numpy(log_probs)[None])
    best = brute_force.best_paths(log_probs, 0)
    assert alignment.score == pytest.approx(max(best.values()))
    assert best[alignment.ids] == pytest.approx(alignment.score)
    assert alignment.score <= brute_force.sums(log_probs, 0)[alignment.ids]
    assert np.isfinite(alignment.score)
