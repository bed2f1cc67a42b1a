"""Who starts and ends machines: the plugin point ``voicehub.remote_providers``."""
