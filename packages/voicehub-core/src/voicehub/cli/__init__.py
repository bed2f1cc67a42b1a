"""The command line ``voicehub``. Its modules import heavy libraries inside their commands only."""
