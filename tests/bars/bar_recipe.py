"""Overhead of the Trainer on a recipe of two phases and 1,000 modules."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from barkit import ROOT, Outcome, bar

LIMIT = 1.10


@bar("recipe-overhead", f"two phases, 1,000 modules: CPU time per step <= {LIMIT} of a hand loop")
def recipe_overhead(scratch: Path) -> Outcome:
    result = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "recipe_overhead.py"), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise RuntimeError(result.stderr.strip()[-2000:])
    figures = json.loads(result.stdout.splitlines()[-1])
    return Outcome(f"{figures['ratio']:.3f}", figures["ratio"] <= LIMIT, figures)
