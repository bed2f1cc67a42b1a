"""Losses that classify speakers."""

from __future__ import annotations

from voicehub_xvector.losses.classification import MarginSoftmax, build_loss
from voicehub_xvector.losses.schedule import margin_scale, warmup_share

__all__ = ["MarginSoftmax", "build_loss", "margin_scale", "warmup_share"]
