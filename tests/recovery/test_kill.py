"""SIGKILL, then the same command: the run ends as if nothing had happened.

``nox -s bars -- resume`` does the same through the command line with a real recogniser, twenty
times and at moments drawn from the clock.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

SCRIPT = Path(__file__).with_name("training_script.py")
TIMED = ("time", "samples_per_second", "data_wait", "eval_runtime", "eval_samples_per_second")


def start(run_dir: Path, workers: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), str(run_dir), str(workers)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )


def kill_after(process: subprocess.Popen[str], events: int) -> bool:
    """Kill the run and its workers after so many lines; False if it ended before."""
    assert process.stdout is not None
    for _ in range(events):
        line = process.stdout.readline()
        if not line or line.startswith("done"):
            break
    else:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return True
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    return False


def finish(process: subprocess.Popen[str]) -> None:
    _, errors = process.communicate()
    assert process.returncode == 0, errors


def results(run_dir: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    rows = [
        {key: value for key, value in json.loads(line).items() if key not in TIMED}
        for line in (run_dir / "metrics.jsonl").read_text().splitlines()
    ]
    return torch.load(run_dir / "final.pt", weights_only=True), rows


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL and process groups")
def test_killed_runs_end_like_the_one_left_alone(tmp_path: Path) -> None:
    finish(start(tmp_path / "whole", 0))
    rng = random.Random(5)
    killed = 0
    for attempt in range(5):
        process = start(tmp_path / "cut", workers=(0, 2)[attempt % 2])
        killed += kill_after(process, rng.randint(5, 30))
    finish(start(tmp_path / "cut", 0))
    assert killed >= 4
    whole, cut = results(tmp_path / "whole"), results(tmp_path / "cut")
    assert whole[1] == cut[1]
    assert all(torch.equal(value, cut[0][name]) for name, value in whole[0].items())
    left = sorted(p.name for p in (tmp_path / "cut").iterdir() if p.name.startswith("."))
    assert left == [], "litter of killed writers was not removed"
