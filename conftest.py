"""What holds for a whole test run: the garbage collector leaves the imported code alone."""

from __future__ import annotations

import gc

# Collecting the tests imports torch, transformers and all tests: close to a million objects, and
# next to no garbage. Every full collection would look through all of them, for half a second.
gc.disable()


def pytest_collection_finish() -> None:
    """From here on only what tests make is looked through, when there is enough of it."""
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
    gc.enable()
