"""``voicehub data``: check, describe and convert corpora."""
