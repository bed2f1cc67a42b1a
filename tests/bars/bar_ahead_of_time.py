"""Every Triton kernel in every configuration for three architectures, without a GPU."""

from __future__ import annotations

import importlib.util
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from barkit import ROOT, Outcome, Skipped, bar


def compiled(wanted: list[Any], cache: Path) -> list[Any]:
    """The binaries, from as many processes as there are processors."""
    from ahead_of_time import compile_all

    parts = max(1, min(len(os.sched_getaffinity(0)), 8))
    found: list[Any] = [None] * len(wanted)
    with ThreadPoolExecutor(parts) as pool:
        shares = [pool.submit(compile_all, wanted[part::parts], cache) for part in range(parts)]
        for part, share in enumerate(shares):
            found[part::parts] = share.result()
    return found


@bar(
    "ahead-of-time",
    "every shipped configuration of every Triton kernel on sm_80, sm_90, sm_100: 0 bytes spilt, "
    "<= 128 registers, no atomics",
)
def ahead_of_time(scratch: Path) -> Outcome:
    if importlib.util.find_spec("triton") is None:
        raise Skipped("triton is not installed")
    kernels = str(ROOT / "tests" / "kernels")
    if kernels not in sys.path:
        sys.path.insert(0, kernels)
    import shipped

    wanted = shipped.jobs()
    binaries = compiled(wanted, scratch)
    wrong = shipped.problems(wanted, binaries)
    most: dict[str, int] = {}
    for job, binary in zip(wanted, binaries, strict=True):
        most[job.kernel] = max(most.get(job.kernel, 0), binary.registers)
    figure = (
        f"{len(wanted)} binaries, {len(wrong)} beyond a bound, <= {max(most.values())} registers"
    )
    return Outcome(figure, not wrong, {"registers": most, "wrong": wrong[:20]})
