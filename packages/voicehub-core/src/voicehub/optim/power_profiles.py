"""Power-function averages of weights: their profiles, and any other profile from stored ones.

Karras et al. 2024, "Analyzing and Improving the Training Dynamics of Diffusion Models", section 3
and appendix C. An average with exponent gamma weighs the weights after update tau, of t, in
proportion to tau ** gamma. Its relative width sigma_rel is the standard deviation of that profile
as a share of t: unlike a fixed decay it grows with the run, and holds nothing of the start.

Profiles in continuous time: p(tau) = (gamma + 1) tau ** gamma / t ** (gamma + 1) on [0, t].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from voicehub.errors import ConfigurationError

#: Relative width of the uniform average, gamma = 0: the widest there is.
WIDEST = 1.0 / math.sqrt(12.0)
#: Relative error of a profile from which on an average is not what was asked for.
MAX_RESIDUAL = 0.05


class Profile(NamedTuple):
    """A power-function average: its exponent, and the updates that it was taken over."""

    gamma: float
    updates: int


class Combination(NamedTuple):
    """How stored averages add up to another.

    Attributes:
        weights: One for each stored average; their sum is 1.
        residual: sqrt(1 - w b / <p, p>) of the least-squares solution w: the relative distance of
            the profile found from the one asked for.
        normalised_residual: The same for the weights as they are used, divided by their sum.
        total: Sum of the least-squares weights before that division.
    """

    weights: tuple[float, ...]
    residual: float
    normalised_residual: float
    total: float


def gamma_of(sigma_rel: float) -> float:
    """The exponent of a relative width: the largest real root of a cubic.

    g^3 + 7 g^2 + (16 - s^-2) g + (12 - s^-2) = 0; 0.05 gives 16.9722, 0.1 gives 6.9372.

    Raises:
        ConfigurationError: the width is not in (0, 1 / sqrt(12)].
    """
    if not 0.0 < sigma_rel <= WIDEST * (1 + 1e-12):
        raise ConfigurationError(
            f"the relative width of an average must be over 0 and at most 1 / sqrt(12) = "
            f"{WIDEST:.4f} (all updates alike), got {sigma_rel:g}."
        )
    inverse = sigma_rel**-2
    roots = np.roots([1.0, 7.0, 16.0 - inverse, 12.0 - inverse])
    gamma = float(max(root.real for root in roots if abs(root.imag) < 1e-6 * (1 + abs(root))))
    for _ in range(3):  # companion matrices are exact to some 12 digits; Newton does the rest
        value = ((gamma + 7.0) * gamma + 16.0 - inverse) * gamma + 12.0 - inverse
        gamma -= value / ((3.0 * gamma + 14.0) * gamma + 16.0 - inverse)
    return max(0.0, gamma)


def sigma_rel_of(gamma: float) -> float:
    """The relative width of an exponent: sqrt(g + 1) / ((g + 2) sqrt(g + 3)).

    Raises:
        ConfigurationError: the exponent is negative.
    """
    if gamma < 0:
        raise ConfigurationError(f"the exponent of an average must be at least 0, got {gamma:g}.")
    return math.sqrt(gamma + 1.0) / ((gamma + 2.0) * math.sqrt(gamma + 3.0))


def power_decay(update: int, gamma: float) -> float:
    """The decay of the zero-based ``update``: (1 - 1 / (t + 1)) ** (1 + gamma).

    That of the first is 0: the average begins with the weights after it.
    """
    return float((update / (update + 1.0)) ** (1.0 + gamma))


def tracked_share(update: int, profile: Profile) -> float:
    """The share of the weights after the one-based ``update`` in a tracked average.

    (i ** (g + 1) - (i - 1) ** (g + 1)) / t ** (g + 1): the profile's integral over one update.
    """
    power, total = profile.gamma + 1.0, float(profile.updates)
    return float((update / total) ** power - ((update - 1) / total) ** power)


def inner_product(one: Profile, other: Profile) -> float:
    """<a, b>, the integral of the product of two profiles.

    (ga + 1)(gb + 1) (ta / tb) ** (gb if ta < tb else -ga) / ((ga + gb + 1) max(ta, tb)).
    """
    (ga, ta), (gb, tb) = one, other
    ratio = (ta / tb) ** (gb if ta < tb else -ga)
    return float((ga + 1.0) * (gb + 1.0) * ratio / ((ga + gb + 1.0) * max(ta, tb)))


def combine(stored: Sequence[Profile], target: Profile) -> Combination:
    """The weights with which stored averages come nearest to another.

    Minimises || sum_i w_i p_i - p || by solving A w = b in float64, A_ij = <p_i, p_j> and
    b_i = <p_i, p>; the weights are then divided by their sum, so that no weight of the model is
    scaled. An average that is stored is taken as it is.

    Raises:
        ConfigurationError: nothing is stored, or one average is stored twice.
    """
    if not stored:
        raise ConfigurationError("there is no stored average to combine.")
    if len(set(stored)) < len(stored):
        raise ConfigurationError("one average is stored twice: remove one of the two.")
    if target in stored:
        unit = tuple(float(profile == target) for profile in stored)
        return Combination(unit, 0.0, 0.0, 1.0)
    norms = np.array([math.sqrt(inner_product(p, p)) for p in stored])
    own = inner_product(target, target)
    gram: NDArray[np.float64] = np.array([[inner_product(a, b) for b in stored] for a in stored])
    against = np.array([inner_product(p, target) for p in stored])
    # Profiles of norm 1: the rows of a long run would else differ by its length.
    scaled, *_ = np.linalg.lstsq(gram / np.outer(norms, norms), against / norms, rcond=1e-13)
    weights = scaled / norms
    total = float(weights.sum())
    used = weights / total
    left = float(used @ gram @ used - 2.0 * used @ against + own)
    return Combination(
        tuple(float(weight) for weight in used),
        math.sqrt(max(0.0, 1.0 - float(weights @ against) / own)),
        math.sqrt(max(0.0, left / own)),
        total,
    )
