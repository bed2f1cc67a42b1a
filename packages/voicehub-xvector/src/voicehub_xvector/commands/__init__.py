"""Commands that this package adds to ``voicehub``."""
