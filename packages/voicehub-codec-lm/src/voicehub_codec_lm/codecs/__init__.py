"""Codecs: waveforms to discrete codes and back."""

from __future__ import annotations

from voicehub_codec_lm.codecs.base import AudioCodec, require_identity
from voicehub_codec_lm.codecs.cache import TokenCache
from voicehub_codec_lm.codecs.corpus import CorpusCodec, CorpusCodecConfig
from voicehub_codec_lm.codecs.loading import CodecConfig, load_codec

__all__ = [
    "AudioCodec",
    "CodecConfig",
    "CorpusCodec",
    "CorpusCodecConfig",
    "TokenCache",
    "load_codec",
    "require_identity",
]
