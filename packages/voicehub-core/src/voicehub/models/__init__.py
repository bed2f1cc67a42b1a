"""Model wrappers: lazy loading, loading for training, portable artifacts, lookup by type."""
