"""One training epoch of a speaker model on real recordings, at equal peak memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from barkit import ROOT, Outcome, bar, shared_data

LIMIT = 1.3
PEAKS = (0.85, 1.0)
"""Of the random batches' peak to the capped ones': one recording less is so much less."""


@bar(
    "xvector-throughput",
    f"an epoch on fsdd with capped batches >= {LIMIT} x random ones at equal peak memory, and "
    "above speechbrain's Brain.fit",
)
def xvector_throughput(scratch: Path) -> Outcome:
    data = shared_data("fsdd")
    script = ROOT / "benchmarks" / "xvector_throughput.py"
    result = subprocess.run(
        [sys.executable, str(script), str(data), "--json"],
        capture_output=True,
        text=True,
        check=False,
        cwd=scratch,
        # Threads that wait by spinning slow a busy machine down; `voicehub` sets the same.
        env={"OMP_WAIT_POLICY": "PASSIVE", **os.environ},
    )
    if result.returncode != 0:
        raise RuntimeError(result.stderr.strip()[-2000:])
    figures = json.loads(result.stdout.splitlines()[-1])
    ways = figures["ways"]
    ours = ways["voicehub, bucketed"]["peak_mb"]
    fixed = ways["voicehub, fixed"]
    theirs = {name: way for name, way in ways.items() if name.startswith("speechbrain")}
    equal = PEAKS[0] <= fixed["peak_mb"] / ours <= PEAKS[1]
    faster = min(way["ours_faster_by"] for way in theirs.values())
    figure = (
        f"{fixed['ours_faster_by']:.2f} x fixed batches of {figures['batch_size']} "
        f"({fixed['peak_mb']:.0f} and {ours:.0f} MB), "
        + ", ".join(f"{way['ours_faster_by']:.2f} x {name}" for name, way in theirs.items())
    )
    return Outcome(figure, equal and fixed["ours_faster_by"] >= LIMIT and faster > 1.0, figures)
