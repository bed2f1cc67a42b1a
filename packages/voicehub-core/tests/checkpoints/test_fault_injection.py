"""A sample of the sweep in ``faults/``: operations of a save fail below Python, one at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

SWEEP = Path(__file__).with_name("faults") / "sweep.py"


def sweep(*options: str) -> dict[str, dict[str, int]]:
    """Run a sweep, in memory where possible: it makes many saves."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place) as directory:
        done = subprocess.run(
            [sys.executable, str(SWEEP), directory, *options], capture_output=True, text=True
        )
    if done.returncode == 77:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.mark.parametrize("through", ["writer", "trainer"])
def test_a_save_that_fails_anywhere_leaves_a_sound_checkpoint(through: str) -> None:
    every = {"writer": "47", "trainer": "83"}[through]
    strikes = sweep("--through", through, "--call", "write", "--every", every)
    assert min(kind["struck"] for kind in strikes.values()) >= 3


def test_renames_and_syncs_that_fail_leave_a_sound_checkpoint() -> None:
    options = ["--through", "writer", "--call", "rename", "fsync", "mkdir", "--every", "3"]
    strikes = sweep(*options)
    assert min(kind["struck"] for kind in strikes.values()) >= 2


def test_a_model_that_is_replaced_is_never_lost() -> None:
    strikes = sweep("--through", "artifact", "--call", "rename", "write", "--every", "2")
    assert strikes["rename KILL"]["struck"] >= 1
    assert strikes["write KILL"]["struck"] >= 2
