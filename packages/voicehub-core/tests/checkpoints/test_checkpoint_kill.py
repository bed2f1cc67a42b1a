"""SIGKILL at any moment leaves the last complete checkpoint, and litter for the next start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("kill_writers.py")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the writers are forked")
def test_killed_writers_never_harm_what_was_complete(tmp_path):
    rounds = 60
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path / "run"), "7", str(rounds)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    # The test must have hit writers in the act, and let some of them get further.
    assert outcome["litter"] >= rounds // 4
    assert outcome["progress"] >= rounds // 20
