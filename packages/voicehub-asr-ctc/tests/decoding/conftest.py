"""Brute force and a toy language model to compare decoders with."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch

ARPA = """\\data\\
ngram 1=6
ngram 2=6

\\1-grams:
-1.2\t<unk>
-99\t<s>\t-0.3
-0.9\t</s>
-0.5\ta\t-0.2
-0.8\tab\t-0.1
-1.1\tba\t-0.4

\\2-grams:
-0.3\t<s> a
-0.9\t<s> ba
-0.2\ta ab
-0.6\tab ab
-0.7\tab </s>
-0.4\tba </s>

\\end\\
"""


class ToyBigram:
    """Any word follows any other with a probability read off both spellings."""

    def initial_state(self):
        return "<s>"

    def score(self, state, word):
        return self._log_prob(state, word), word

    def finish(self, state):
        return self._log_prob(state, "</s>")

    @staticmethod
    def _log_prob(before, word):
        return -0.2 - (sum(map(ord, before)) * 7 + sum(map(ord, word)) * 13) % 11 / 3


class BruteForce:
    """Enumerates every frame-by-frame path."""

    @staticmethod
    def collapse(path, blank):
        return tuple(token for token, _ in itertools.groupby(path) if token != blank)

    def sums(self, log_probs, blank):
        """Log-probability of every label sequence, over all of its alignments."""
        totals = {}
        for ids, score in self._paths(log_probs, blank):
            totals[ids] = np.logaddexp(totals.get(ids, -math.inf), score)
        return totals

    def best_paths(self, log_probs, blank):
        """Log-probability of the best alignment of every label sequence."""
        best = {}
        for ids, score in self._paths(log_probs, blank):
            best[ids] = max(best.get(ids, -math.inf), score)
        return best

    def _paths(self, log_probs, blank):
        frames, size = log_probs.shape
        for path in itertools.product(range(size), repeat=frames):
            score = sum(log_probs[t, token] for t, token in enumerate(path))
            yield self.collapse(path, blank), float(score)


def sentence_score(lm, words):
    state, total = lm.initial_state(), 0.0
    for word in words:
        value, state = lm.score(state, word)
        total += value
    return total + lm.finish(state)


@pytest.fixture(scope="session")
def brute_force():
    return BruteForce()


@pytest.fixture(scope="session")
def toy_lm():
    return ToyBigram()


@pytest.fixture(scope="session")
def score_sentence():
    return sentence_score


@pytest.fixture(scope="session")
def draw_log_probs():
    """Draw log-probabilities (frames, size); a larger sharpness makes frames more certain."""

    def draw(frames: int, size: int, seed: int, sharpness: float = 2.0) -> np.ndarray:
        scores = np.random.default_rng(seed).standard_normal((frames, size)) * sharpness
        return torch.from_numpy(scores).log_softmax(-1).numpy()

    return draw


@pytest.fixture(scope="session")
def arpa_file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("lm") / "bigram.arpa"
    path.write_text(ARPA)
    return path
