"""Feature stores: precomputed latents and conditions on disk, joined by id, with checksums."""

from __future__ import annotations

from voicehub_flow.store.reader import FeatureStore, open_store
from voicehub_flow.store.tables import StoreTable, read_table

__all__ = ["FeatureStore", "StoreTable", "open_store", "read_table"]
