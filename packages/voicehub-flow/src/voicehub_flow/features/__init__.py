"""From recordings to a feature store: extractors by name, and the job that runs them."""
