"""The text-to-speech recipe: a transformer over mel frames, in the style of F5-TTS."""
