"""What holds for a whole test run: which files come first, and what is never garbage."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent

#: Files that take ten seconds and more, the longest first. A worker of `nox -s tests` is given a
#: file at a time, in this order: one of these as the last would leave the other cores idle.
LONG = (
    "tests/docs/test_pages.py",
    "tests/kernels/test_ahead_of_time.py",
    "packages/voicehub-asr-ctc/tests/test_conformance.py",
    "packages/voicehub-xvector/tests/test_conformance.py",
    "packages/voicehub-core/tests/cli/test_launch.py",
    "packages/voicehub-core/tests/checkpoints/test_fault_injection.py",
    "tests/planning/test_plan.py",
    "packages/voicehub-asr-ctc/tests/losses/test_ctc_triton.py",
    "packages/voicehub-core/tests/new_plugin/test_new_plugin.py",
    "packages/voicehub-core/tests/cli/test_bad_input.py",
    "packages/voicehub-asr-ctc/tests/test_training.py",
    "packages/voicehub-vits/tests/test_conformance.py",
    "tests/benchmarks/test_trainer_overhead.py",
    "tests/plugins_host/test_planted_faults.py",
    "packages/voicehub-asr-llm/tests/saving/test_artifacts.py",
    "packages/voicehub-codec-lm/tests/test_conformance.py",
)

# Collecting the tests imports torch, transformers and all tests: close to a million objects, and
# next to no garbage. Every full collection would look through all of them, for half a second.
gc.disable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files to the front; all else keeps its order."""
    place = {ROOT / name: number for number, name in enumerate(LONG)}
    items.sort(key=lambda item: place.get(item.path, len(LONG)))


def pytest_collection_finish() -> None:
    """From here on only what tests make is looked through, when there is enough of it."""
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
    gc.enable()
