"""Speech encoders: from audio to frames, with one length formula each."""

from __future__ import annotations

from voicehub_asr_llm.encoders.base import Encoder, EncoderSource, FrontEnd, Prepared
from voicehub_asr_llm.encoders.describe import describe_encoder

__all__ = ["Encoder", "EncoderSource", "FrontEnd", "Prepared", "describe_encoder"]
