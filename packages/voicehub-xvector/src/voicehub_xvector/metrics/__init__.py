"""Metrics of speaker verification: error rates, detection costs, calibration, DET curves."""

from __future__ import annotations

from voicehub_xvector.metrics.calibration import Calibration, fit_calibration
from voicehub_xvector.metrics.detection import actual_dcf, equal_error_rate, min_dcf
from voicehub_xvector.metrics.operating_points import OperatingPoints, operating_points
from voicehub_xvector.metrics.pairs import all_pairs_points
from voicehub_xvector.metrics.verification import (
    PRIORS,
    Verification,
    verify_pairs,
    verify_scores,
)

__all__ = [
    "PRIORS",
    "Calibration",
    "OperatingPoints",
    "Verification",
    "actual_dcf",
    "all_pairs_points",
    "equal_error_rate",
    "fit_calibration",
    "min_dcf",
    "operating_points",
    "verify_pairs",
    "verify_scores",
]
