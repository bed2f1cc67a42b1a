"""Losses with kernels of their own, beside the best public implementations."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from barkit import ROOT, Outcome, bar

LONG = "gradient error at 3,000 frames"

Cases = list[dict[str, Any]]
Verdict = tuple[str, bool]


def measured(*names: str) -> Cases:
    """The cases of losses, or of all, from one run of ``benchmarks/losses.py``."""
    result = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "losses.py"), *names, "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise RuntimeError(result.stderr.strip()[-2000:])
    cases: Cases = json.loads(result.stdout.splitlines()[-1])["cases"]
    return cases


def ratios(case: dict[str, Any]) -> tuple[float, float]:
    """Time and peak memory of ours as shares of the rival's."""
    seconds, megabytes, rival = case["seconds"], case["megabytes"], case["rival"]
    return seconds["ours"] / seconds[rival], megabytes["ours"] / megabytes[rival]


def alignment(cases: Cases) -> Verdict:
    """Times to an index and to a dense path, and every frame."""
    (case,) = cases
    faster, facts = case["faster"], case["facts"]
    index, dense = faster["ours, index"], faster["ours, dense"]
    unlike = facts["frames unlike float64"] + facts["frames unlike float64 at scores near -1e8"]
    figure = f"index {index:.1f}x, dense {dense:.1f}x, {unlike:.0f} frames unlike float64"
    return figure, index >= 4 and dense >= 2 and unlike == 0


def ctc(cases: Cases) -> Verdict:
    """Few tokens, then many."""
    figures, passed = [], True
    for case, least in zip(cases, (5.0, 2.5), strict=True):
        faster, peak = case["faster"]["ours"], ratios(case)[1]
        error = max(case["facts"][name] for name in ("gradient error", LONG))
        figures.append(f"{faster:.1f}x at {peak:.2f} of the memory, error {error:.0e}")
        passed = passed and faster >= least and peak <= 0.4 and error <= 2e-6
    return "; ".join(figures), passed


def linear_cross_entropy(cases: Cases) -> Verdict:
    """All labels valid, then half of them masked."""
    return _within(cases, [(1.0, 0.2), (0.45, 0.2)])


def aam_softmax(cases: Cases) -> Verdict:
    """100,000 classes."""
    return _within(cases, [(0.5, 0.15)])


def velocity(cases: Cases) -> Verdict:
    """Every size and dtype."""
    figure, passed = _within(cases, [(1.0, 1.0)] * len(cases))
    return figure, passed and all(ratio < 1 for case in cases for ratio in ratios(case))


def _within(cases: Cases, most: Sequence[tuple[float, float]]) -> Verdict:
    """Shares of the rival's time and peak memory, each at most so much."""
    figures, passed = [], True
    for case, (time, memory) in zip(cases, most, strict=True):
        seconds, peak = ratios(case)
        figures.append(f"time {seconds:.2f} at {peak:.2f} of the memory")
        passed = passed and seconds <= time and peak <= memory
    return "; ".join(figures), passed


CHECKS: dict[str, Callable[[Cases], Verdict]] = {
    "alignment": alignment,
    "ctc": ctc,
    "linear-cross-entropy": linear_cross_entropy,
    "aam-softmax": aam_softmax,
    "velocity": velocity,
}


@bar(
    "losses",
    "all five losses reach their bars in one run of benchmarks/losses.py, AAM softmax <= 0.15 of "
    "the textbook's peak and <= 0.5 of its time among them",
)
def losses(scratch: Path) -> Outcome:
    cases = measured()
    verdicts = {
        name: check([case for case in cases if case["loss"] == name])
        for name, check in CHECKS.items()
    }
    figure = " | ".join(
        f"{name}: {figure}{'' if passed else ' FAIL'}"
        for name, (figure, passed) in verdicts.items()
    )
    return Outcome(figure, all(passed for _, passed in verdicts.values()), {"cases": cases})


def _alone(name: str) -> Outcome:
    cases = measured(name)
    figure, passed = CHECKS[name](cases)
    return Outcome(figure, passed, {"cases": cases})


@bar(
    "alignment-loss",
    "alignment search >= 4x the published package to an index, >= 2x to a dense path; every "
    "frame as in float64",
)
def alignment_alone(scratch: Path) -> Outcome:
    return _alone("alignment")


@bar(
    "ctc-loss",
    "log-softmax + CTC >= 5x torch at 16x400x32, >= 2.5x at 8x1000x5000, peak memory <= 0.4x, "
    "gradient within 2e-6 of float64 to 3,000 frames",
)
def ctc_alone(scratch: Path) -> Outcome:
    return _alone("ctc")


@bar(
    "linear-cross-entropy",
    "eight heads of 1,024 on 4,096 x 512: peak <= 0.2 and time <= 1.0 of materialised logits, time "
    "<= 0.45 with half the labels masked",
)
def linear_cross_entropy_alone(scratch: Path) -> Outcome:
    return _alone("linear-cross-entropy")


@bar(
    "velocity-loss",
    "velocity error and gradient: less time and peak memory than target, difference and mask, in "
    "float32 and bfloat16",
)
def velocity_alone(scratch: Path) -> Outcome:
    return _alone("velocity")
