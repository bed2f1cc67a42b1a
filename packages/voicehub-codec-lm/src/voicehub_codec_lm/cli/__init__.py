"""``voicehub codec``."""
