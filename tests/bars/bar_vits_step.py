"""One step of VITS, beside a plain PyTorch loop over the same modules."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from barkit import ROOT, Outcome, bar

LIMIT = 0.9


@bar("vits-step", f"a step of vits/tiny at batch 8 <= {LIMIT} of a plain loop's CPU time")
def vits_step(scratch: Path) -> Outcome:
    result = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "vits_step.py"), "--steps", "30", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise RuntimeError(result.stderr.strip()[-2000:])
    print(result.stdout.rpartition("\n{")[0])
    found = json.loads(result.stdout.splitlines()[-1])
    return Outcome(f"{found['ratio']:.3f}", found["ratio"] <= LIMIT, found)
