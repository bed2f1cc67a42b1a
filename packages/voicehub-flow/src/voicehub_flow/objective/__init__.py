"""The flow-matching objective in small parts: path, times, null conditions, loss by time."""

from __future__ import annotations

from voicehub_flow.objective.null_conditions import (
    AudioVisualDrops,
    AudioVisualNull,
    InfillDrops,
    InfillNull,
)
from voicehub_flow.objective.path import interpolate, velocity
from voicehub_flow.objective.time_bins import BINS, TimeBins, loss_by_time, time_rows
from voicehub_flow.objective.time_samplers import LogitNormalTime, TimeSampler, UniformTime

__all__ = [
    "BINS",
    "AudioVisualDrops",
    "AudioVisualNull",
    "InfillDrops",
    "InfillNull",
    "LogitNormalTime",
    "TimeBins",
    "TimeSampler",
    "UniformTime",
    "interpolate",
    "loss_by_time",
    "time_rows",
    "velocity",
]
