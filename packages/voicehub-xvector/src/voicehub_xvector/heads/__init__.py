"""Heads: from features or fused hidden states to an embedding."""

from __future__ import annotations

from voicehub_xvector.heads.base import Head
from voicehub_xvector.heads.build import build_head

__all__ = ["Head", "build_head"]
