"""Overhead of the Trainer per step, beside a bare loop and two other trainers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from barkit import ROOT, Outcome, bar

LIMIT = 1.15


@bar("overhead", f"CPU time per step <= {LIMIT} of a bare loop, below transformers and Lightning")
def overhead(scratch: Path) -> Outcome:
    result = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "trainer_overhead.py"), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise RuntimeError(result.stderr.strip()[-2000:])
    systems = json.loads(result.stdout.splitlines()[-1])["systems"]
    ratios = {name: system["ratio_to_bare"] for name, system in systems.items()}
    ours = ratios["voicehub"]
    passed = ours <= LIMIT and ours < min(ratios["transformers"], ratios["lightning"])
    others = ", ".join(f"{name} {ratios[name]:.2f}" for name in ("transformers", "lightning"))
    return Outcome(f"ours {ours:.3f}, {others}", passed, systems)
