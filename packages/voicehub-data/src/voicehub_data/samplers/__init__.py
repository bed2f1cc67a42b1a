"""Batch plans over pieces of recordings and over classes, all under a hard cap on seconds."""

from __future__ import annotations

from voicehub_data.samplers.chunks import RandomChunkPlan
from voicehub_data.samplers.classes import ClassWeightedPlan, class_draws

__all__ = ["ClassWeightedPlan", "RandomChunkPlan", "class_draws"]
