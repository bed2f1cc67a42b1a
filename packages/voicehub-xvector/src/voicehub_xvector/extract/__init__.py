"""Embeddings of every recording of a manifest."""

from __future__ import annotations

from voicehub_xvector.extract.job import ExtractionSettings
from voicehub_xvector.extract.run import ExtractionSummary, extract_embeddings

__all__ = ["ExtractionSettings", "ExtractionSummary", "extract_embeddings"]
