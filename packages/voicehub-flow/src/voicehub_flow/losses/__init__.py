"""Losses of flow matching."""

from __future__ import annotations

from voicehub_flow.losses.masked_velocity_mse import masked_velocity_error

__all__ = ["masked_velocity_error"]
