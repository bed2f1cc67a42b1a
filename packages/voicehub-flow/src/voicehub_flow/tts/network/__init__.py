"""The network, with the parameter names of published checkpoints."""

from __future__ import annotations

from voicehub_flow.tts.network.dit import DiT

__all__ = ["DiT"]
