"""Codec language models for VoiceHub: text to audio tokens to speech.

Importing this package loads nothing else.
"""

from __future__ import annotations

__version__ = "0.1.0"
