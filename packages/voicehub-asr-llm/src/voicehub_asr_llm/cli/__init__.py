"""The command ``voicehub asr-llm``."""
