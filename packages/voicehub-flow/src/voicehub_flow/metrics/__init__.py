"""Metrics of generated audio, by name."""
