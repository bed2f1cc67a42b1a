"""Audio to model input, one utterance at a time."""

from __future__ import annotations

from voicehub_xvector.front_ends.base import FrontEnd, Prepared
from voicehub_xvector.front_ends.build import build_features

__all__ = ["FrontEnd", "Prepared", "build_features"]
