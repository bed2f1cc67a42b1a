"""The AAM softmax over 100,000 speakers without the full logits."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from barkit import ROOT, Outcome, Skipped, bar

PEAK, TIME = 0.15, 0.5


@bar(
    "aam-softmax",
    f"B=64, D=192, C=100,000: resident peak <= {PEAK}, time <= {TIME} of the textbook",
)
def aam_softmax(scratch: Path) -> Outcome:
    if not Path("/proc/self/clear_refs").exists():
        raise Skipped("needs Linux's /proc/self/clear_refs")
    result = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "aam_softmax.py"), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise RuntimeError(result.stderr.strip()[-2000:])
    figures = json.loads(result.stdout.splitlines()[-1])
    ours = figures["systems"]["voicehub"]
    figure = f"peak {ours['resident_ratio']:.3f}, time {ours['time_ratio']:.3f}"
    return Outcome(figure, ours["resident_ratio"] <= PEAK and ours["time_ratio"] <= TIME, figures)
