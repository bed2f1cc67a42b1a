"""The speech tasks a model type can serve."""

from __future__ import annotations

from enum import Enum


class SpeechTask(str, Enum):
    """What a model does with speech; ``generic`` is a plain module of the user's own."""

    TEXT_TO_SPEECH = "text-to-speech"
    AUTOMATIC_SPEECH_RECOGNITION = "automatic-speech-recognition"
    SPEAKER_EMBEDDING = "speaker-embedding"
    AUDIO_GENERATION = "audio-generation"
    VOICE_ACTIVITY_DETECTION = "voice-activity-detection"
    GENERIC = "generic"
