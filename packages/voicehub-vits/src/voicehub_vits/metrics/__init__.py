"""Figures of an evaluation: durations and alignments."""

from __future__ import annotations

from voicehub_vits.metrics.alignment import AlignmentFigures, alignment_figures
from voicehub_vits.metrics.duration import DurationErrors, duration_errors

__all__ = ["AlignmentFigures", "DurationErrors", "alignment_figures", "duration_errors"]
