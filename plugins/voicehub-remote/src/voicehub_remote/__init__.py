"""VoiceHub runs on a machine that you can ssh to: ``voicehub remote``."""
