"""Recognition with language models for VoiceHub: speech encoder, projector, decoder.

Importing this package loads nothing else.
"""

from __future__ import annotations

__version__ = "0.1.0"
