"""Margin softmax over very many speakers, without the full matrix of cosines."""

from __future__ import annotations

from voicehub_xvector.losses.aam_softmax.ops import aam_softmax

__all__ = ["aam_softmax"]
