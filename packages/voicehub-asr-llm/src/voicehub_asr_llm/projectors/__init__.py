"""Projectors: from frames of the encoder to inputs of the decoder."""

from __future__ import annotations

from voicehub_asr_llm.projectors.base import Projected, Projector, projected_lengths
from voicehub_asr_llm.projectors.build import build_projector
from voicehub_asr_llm.projectors.calibration import calibrate, probe_rms

__all__ = [
    "Projected",
    "Projector",
    "build_projector",
    "calibrate",
    "probe_rms",
    "projected_lengths",
]
