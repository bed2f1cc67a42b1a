"""How prompts and codes become sequences."""

from __future__ import annotations

from voicehub_codec_lm.layouts.delays import delay, delayed_length, delayed_mask, undelay
from voicehub_codec_lm.layouts.framing import (
    DelayFrame,
    DepthFrame,
    FlatFrame,
    FlatVocabulary,
    block_mask,
    delay_frame,
    depth_frame,
    depth_frames,
    flat_frame,
)

__all__ = [
    "DelayFrame",
    "DepthFrame",
    "FlatFrame",
    "FlatVocabulary",
    "block_mask",
    "delay",
    "delay_frame",
    "delayed_length",
    "delayed_mask",
    "depth_frame",
    "depth_frames",
    "flat_frame",
    "undelay",
]
