"""Losses with kernels of their own, beside the best public implementations."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from barkit import ROOT, Outcome, bar

LONG = "gradient error at 3,000 frames"


def measured(name: str) -> list[dict[str, Any]]:
    """The cases of one loss, from a run of ``benchmarks/losses.py``."""
    result = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "losses.py"), name, "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise RuntimeError(result.stderr.strip()[-2000:])
    cases: list[dict[str, Any]] = json.loads(result.stdout.splitlines()[-1])["cases"]
    return cases


@bar(
    "alignment-loss",
    "alignment search >= 4x the published package to an index, >= 2x to a dense path; every "
    "frame as in float64",
)
def alignment(scratch: Path) -> Outcome:
    (case,) = measured("alignment")
    faster, facts = case["faster"], case["facts"]
    index, dense = faster["ours, index"], faster["ours, dense"]
    unlike = facts["frames unlike float64"] + facts["frames unlike float64 at scores near -1e8"]
    figure = f"index {index:.1f}x, dense {dense:.1f}x, {unlike:.0f} frames unlike float64"
    return Outcome(figure, index >= 4 and dense >= 2 and unlike == 0, case)


@bar(
    "ctc-loss",
    "log-softmax + CTC >= 5x torch at 16x400x32, >= 2.5x at 8x1000x5000, peak memory <= 0.4x, "
    "gradient within 2e-6 of float64 to 3,000 frames",
)
def ctc(scratch: Path) -> Outcome:
    figures, passed, cases = [], True, measured("ctc")
    for case, least in zip(cases, (5.0, 2.5), strict=True):
        faster = case["faster"]["ours"]
        peak = case["megabytes"]["ours"] / case["megabytes"][case["rival"]]
        errors = (case["facts"][name] for name in ("gradient error", LONG))
        error = max(errors)
        figures.append(f"{faster:.1f}x at {peak:.2f} of the memory, error {error:.0e}")
        passed = passed and faster >= least and peak <= 0.4 and error <= 2e-6
    return Outcome("; ".join(figures), passed, cases)


@bar(
    "linear-cross-entropy",
    "eight heads of 1,024 on 4,096 x 512: peak <= 0.2 and time <= 1.0 of materialised logits, time "
    "<= 0.45 with half the labels masked",
)
def linear_cross_entropy(scratch: Path) -> Outcome:
    cases = measured("linear-cross-entropy")
    figures, passed = [], True
    for case, most in zip(cases, (1.0, 0.45), strict=True):
        seconds = case["seconds"]["ours"] / case["seconds"][case["rival"]]
        peak = case["megabytes"]["ours"] / case["megabytes"][case["rival"]]
        figures.append(f"time {seconds:.2f} at {peak:.2f} of the memory")
        passed = passed and seconds <= most and peak <= 0.2
    return Outcome("; half masked: ".join(figures), passed, cases)
