"""A mel-spectrogram denoiser for VoiceHub. Importing this loads nothing."""
