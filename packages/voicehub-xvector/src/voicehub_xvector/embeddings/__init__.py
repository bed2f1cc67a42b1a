"""Sets of embeddings, and the files that they are kept in."""

from __future__ import annotations

from voicehub_xvector.embeddings.files import FORMATS, read_embeddings, write_embeddings
from voicehub_xvector.embeddings.table import EmbeddingTable

__all__ = ["FORMATS", "EmbeddingTable", "read_embeddings", "write_embeddings"]
