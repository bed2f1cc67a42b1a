"""Is an order of batches random? Three tests of one epoch, and whether many epochs pass them.

Each test gives a p-value: how likely a random order looks at least as unlike. Where the order *is*
random, these are uniform between 0 and 1 over epochs; ``uniform`` tests that, so that an order
which is too regular fails as one which is too irregular does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

PARTS = 10


def rank_correlation(values: Sequence[float]) -> float:
    """Spearman: does the value rise or fall with the position?"""
    ranks = _ranks(values)
    count = len(ranks)
    rho = float(np.corrcoef(np.arange(count), ranks)[0, 1])
    return _two_sided(rho * math.sqrt(count - 1))


def runs(values: Sequence[float]) -> float:
    """Wald and Wolfowitz: do values above and below the median come in runs, or in turn?"""
    above = np.asarray(values) > np.median(values)
    high, low = int(above.sum()), int((~above).sum())
    count = high + low
    found = 1 + int((above[1:] != above[:-1]).sum())
    expected = 1 + 2 * high * low / count
    variance = (expected - 1) * (expected - 2) / (count - 1)
    return _two_sided((found - expected) / math.sqrt(variance))


def places(values: Sequence[float], share: float = 0.25) -> float:
    """Chi-square: do the longest batches lie in every tenth of the epoch alike?

    Args:
        values: one a batch, in order.
        share: of the batches that count as the longest.
    """
    ranks = _ranks(values)
    longest = ranks >= (1.0 - share) * len(ranks)
    part = (np.arange(len(ranks)) * PARTS) // len(ranks)
    found = np.bincount(part[longest], minlength=PARTS)
    sizes = np.bincount(part, minlength=PARTS)
    expected = sizes * longest.mean()
    # Drawn without return: so many fewer ways to differ.
    left = (1.0 - longest.mean()) * len(ranks) / (len(ranks) - 1)
    return _chi_square_tail(float(((found - expected) ** 2 / expected).sum() / left), PARTS - 1)


TESTS = {"rank correlation": rank_correlation, "runs": runs, "places": places}


def uniform(p_values: Sequence[float]) -> float:
    """Kolmogorov and Smirnov: how likely p-values of random orders lie so unevenly."""
    ordered = np.sort(np.asarray(p_values, dtype=np.float64))
    count = len(ordered)
    steps = np.arange(count + 1) / count
    distance = max(float((steps[1:] - ordered).max()), float((ordered - steps[:-1]).max()))
    scaled = (math.sqrt(count) + 0.12 + 0.11 / math.sqrt(count)) * distance  # Stephens 1970
    if scaled < 0.2:
        return 1.0
    terms = (2 * (-1) ** (k - 1) * math.exp(-2 * (k * scaled) ** 2) for k in range(1, 101))
    return min(1.0, max(0.0, sum(terms)))


def verdicts(epochs: Sequence[Sequence[float]]) -> dict[str, float]:
    """Of each test the p-value over all epochs.

    Args:
        epochs: of every epoch the mean duration of its batches, in order.
    """
    return {name: uniform([test(epoch) for epoch in epochs]) for name, test in TESTS.items()}


def _ranks(values: Sequence[float]) -> np.ndarray:
    """0 to n - 1; of equal values the mean of their places."""
    array = np.asarray(values, dtype=np.float64)
    _, inverse, counts = np.unique(array, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts + 1) / 2.0)[inverse]


def _two_sided(z: float) -> float:
    return math.erfc(abs(z) / math.sqrt(2.0))


def _chi_square_tail(value: float, freedom: int) -> float:
    """Upper tail for an odd number of degrees of freedom, in closed form."""
    if freedom % 2 == 0:
        raise ValueError(f"{freedom} degrees of freedom; expected an odd number")
    root = math.sqrt(value)
    tail = math.erfc(root / math.sqrt(2.0))
    term = math.sqrt(2.0 / math.pi) * math.exp(-value / 2.0) * root
    for k in range(1, freedom, 2):
        tail += term
        term *= value / (k + 2)
    return tail
