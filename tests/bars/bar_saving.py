"""What a checkpoint costs the training, and the disk."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from barkit import ROOT, Outcome, Skipped, bar

HELD, DURABLE = 0.25, 1.5
BUSY = 1.2
"""Hashing needs a second core; where others hold it, the durable figure is theirs."""


@bar(
    "saving",
    f"50 M parameters + AdamW: training held <= {HELD} of torch.save, "
    f"durable <= {DURABLE} of torch.save + fsync",
)
def saving(scratch: Path) -> Outcome:
    program = ROOT / "benchmarks" / "checkpoint_saving.py"
    result = subprocess.run(
        [sys.executable, str(program), "--directory", str(scratch), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise RuntimeError(result.stderr.strip()[-2000:])
    figures = json.loads(result.stdout.splitlines()[-1])
    if figures["contention"] > BUSY:
        raise Skipped(
            f"other work holds the cores: torch.save took {figures['contention']:.1f} times its "
            f"CPU time (held {figures['held_ratio']:.2f}, durable {figures['durable_ratio']:.2f})"
        )
    held, durable = figures["held_ratio"], figures["durable_ratio"]
    first, memory = figures["first_held_ratio"], figures["megabytes"]
    text = (
        f"held {held:.2f} (first save {first:.2f}), durable {durable:.2f}; peak memory "
        f"{memory['first save']:.0f} MB for a state of {memory['state']:.0f} MB"
    )
    return Outcome(text, held <= HELD and durable <= DURABLE, figures)
