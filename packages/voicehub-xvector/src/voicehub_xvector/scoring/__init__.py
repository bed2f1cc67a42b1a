"""Scoring trials: lists, backends, score normalisation."""

from __future__ import annotations

from voicehub_xvector.scoring.as_norm import AsNorm, cohort_statistics
from voicehub_xvector.scoring.backends import Backend, Cosine
from voicehub_xvector.scoring.plda import Plda, PldaBackend
from voicehub_xvector.scoring.score import ScoredTrials, score_trials
from voicehub_xvector.scoring.trials import TrialList, read_trials

__all__ = [
    "AsNorm",
    "Backend",
    "Cosine",
    "Plda",
    "PldaBackend",
    "ScoredTrials",
    "TrialList",
    "cohort_statistics",
    "read_trials",
    "score_trials",
]
