"""Guidance, and the way from noise to data."""

from __future__ import annotations

from voicehub_flow.solvers.guidance import guided
from voicehub_flow.solvers.integrate import Method, VelocityField, integrate, solver_times

__all__ = ["Method", "VelocityField", "guided", "integrate", "solver_times"]
