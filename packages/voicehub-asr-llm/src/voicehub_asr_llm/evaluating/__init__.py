"""Measuring a recogniser: corpus error rates, failures apart, by source, not on what it saw."""

from __future__ import annotations

from voicehub_asr_llm.evaluating.manifest import evaluate_manifest, report_rows
from voicehub_asr_llm.evaluating.scoring import Failed, Hypothesis, Outcome, Scores, score
from voicehub_asr_llm.evaluating.seen import SeenIds

__all__ = [
    "Failed",
    "Hypothesis",
    "Outcome",
    "Scores",
    "SeenIds",
    "evaluate_manifest",
    "report_rows",
    "score",
]
