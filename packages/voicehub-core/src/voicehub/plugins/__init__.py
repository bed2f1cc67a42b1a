"""The plugin host: entry points found without importing them, loaded by name, pluggy hooks."""
