"""The commands of ``voicehub remote``, one a module."""
