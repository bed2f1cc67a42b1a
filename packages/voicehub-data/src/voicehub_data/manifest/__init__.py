"""Manifests: one row type and one door, :func:`read_manifest`, to eight formats."""

from __future__ import annotations

from voicehub_data.manifest.join import join_manifests, read_manifests
from voicehub_data.manifest.reader import read_manifest
from voicehub_data.manifest.rows import Manifest, ManifestRow, RowProblem, rows_digest
from voicehub_data.manifest.writer import write_manifest

__all__ = [
    "Manifest",
    "ManifestRow",
    "RowProblem",
    "join_manifests",
    "read_manifest",
    "read_manifests",
    "rows_digest",
    "write_manifest",
]
