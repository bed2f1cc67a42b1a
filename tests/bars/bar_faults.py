"""Every operation of a save fails in turn, below Python: what is offered afterwards is sound."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from barkit import ROOT, Outcome, Skipped, bar

SWEEP = ROOT / "packages" / "voicehub-core" / "tests" / "checkpoints" / "faults" / "sweep.py"
RARE = ["open", "fsync", "rename", "mkdir", "unlink"]
SWEEPS: dict[str, list[tuple[list[str], int]]] = {
    "writer": [(["write"], 1), (RARE, 1)],
    # Its writes are the writer's, in a thread: every fifth of them is struck here.
    "trainer": [(["write"], 5), (RARE, 1)],
    "artifact": [(["write"], 1), (RARE, 1)],
}
"""Operations and strides by what is saved through."""


def sweep(through: str, calls: list[str], every: int, scratch: Path) -> dict[str, dict[str, int]]:
    """Strikes by operation and error. In memory where possible: thousands of saves are made."""
    memory = Path("/dev/shm")
    place = memory if os.access(memory, os.W_OK) else scratch
    with tempfile.TemporaryDirectory(dir=place) as directory:
        command = [sys.executable, str(SWEEP), directory, "--through", through]
        options = ["--every", str(every), "--call", *calls]
        result = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    if result.returncode == 77:
        raise Skipped(result.stderr.strip())
    if result.returncode != 0:
        raise RuntimeError(result.stderr.strip()[-3000:])
    strikes: dict[str, dict[str, int]] = json.loads(result.stdout.splitlines()[-1])
    return strikes


@bar("faults", "the k-th write, fsync, rename, ... fails or kills, every k: the newest is sound")
def faults(scratch: Path) -> Outcome:
    strikes: dict[str, dict[str, dict[str, int]]] = {}
    for through, parts in SWEEPS.items():
        strikes[through] = {}
        for calls, every in parts:
            strikes[through].update(sweep(through, calls, every, scratch))
    counts = {
        through: sum(kind["struck"] for kind in kinds.values())
        for through, kinds in strikes.items()
    }
    missed = [
        f"{through} {name}"
        for through, kinds in strikes.items()
        for name, kind in kinds.items()
        if not kind["struck"]
    ]
    figure = ", ".join(f"{count} strikes through the {name}" for name, count in counts.items())
    if missed:
        figure += f"; never struck: {', '.join(missed)}"
    return Outcome(figure, not missed, strikes)
