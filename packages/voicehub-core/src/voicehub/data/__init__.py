"""Data on its way to a model: field schemas, collation, batch plans, keyed randomness, loading."""
