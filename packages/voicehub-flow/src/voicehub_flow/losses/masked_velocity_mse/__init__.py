"""Squared error of a predicted velocity over the valid frames, in one pass."""

from __future__ import annotations

from voicehub_flow.losses.masked_velocity_mse.ops import masked_velocity_error

__all__ = ["masked_velocity_error"]
