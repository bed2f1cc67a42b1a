"""Framework-free descriptions of what trains: support levels, phases, models, registry."""
