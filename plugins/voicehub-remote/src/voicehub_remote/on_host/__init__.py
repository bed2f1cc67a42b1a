"""What runs on the host: shell and Python programs that are sent as text, nothing installed."""
