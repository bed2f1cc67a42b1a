"""Monotonic alignment search: which text position each frame belongs to."""

from __future__ import annotations

from voicehub_vits.losses.monotonic_alignment.ops import dense_path, maximum_path

__all__ = ["dense_path", "maximum_path"]
