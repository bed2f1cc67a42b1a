"""Checkpoints, format version 4: written in one step, verified before they are read."""
