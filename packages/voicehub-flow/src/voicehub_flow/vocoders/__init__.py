"""Vocoders by name: log-mel frames to waveforms. ``loading.load_vocoder`` builds them."""
