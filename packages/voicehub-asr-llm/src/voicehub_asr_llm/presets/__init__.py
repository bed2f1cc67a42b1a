"""Presets of this family, as YAML files."""
