"""The figures that a verification system is judged by, together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from voicehub_xvector.metrics.detection import equal_error_rate, min_dcf
from voicehub_xvector.metrics.operating_points import OperatingPoints, operating_points
from voicehub_xvector.metrics.pairs import all_pairs_points

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

PRIORS = (0.05, 0.01, 0.005, 0.001)
"""Priors of a target trial at which the minimal detection cost is told."""


@dataclass(frozen=True, eq=False)
class Verification:
    """Attributes:
    eer: equal error rate on the convex hull, in [0, 1].
    min_dcf: minimal normalised detection cost by prior.
    points: what both come from; draws the DET curve.
    """

    eer: float
    min_dcf: Mapping[float, float]
    points: OperatingPoints

    def metrics(self) -> dict[str, float]:
        """``eer`` and, for each prior, ``min_dcf_p05``, ``min_dcf_p01``, ...: lower is better."""
        return {"eer": self.eer} | {
            f"min_dcf_p{format(prior, 'g').removeprefix('0.')}": value
            for prior, value in self.min_dcf.items()
        }


def verify_scores(
    scores: ArrayLike, labels: ArrayLike, *, priors: Sequence[float] = PRIORS
) -> Verification:
    """Judge labelled trials; see :func:`operating_points` for the arguments and errors."""
    return _verify(operating_points(scores, labels), priors)


def verify_pairs(
    embeddings: ArrayLike, speakers: Sequence[str], *, priors: Sequence[float] = PRIORS
) -> Verification:
    """Judge the cosines of all pairs; see :func:`all_pairs_points` for arguments and errors."""
    return _verify(all_pairs_points(embeddings, speakers), priors)


def _verify(points: OperatingPoints, priors: Sequence[float]) -> Verification:
    costs = {prior: min_dcf(points, prior)[0] for prior in priors}
    return Verification(equal_error_rate(points), costs, points)
