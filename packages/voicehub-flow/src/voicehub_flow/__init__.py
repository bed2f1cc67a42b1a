"""Flow matching for VoiceHub: text to speech, and audio from a feature store.

Importing this package loads nothing else.
"""

from __future__ import annotations

__version__ = "0.1.0"
