"""`voicehub train PRESET --smoke` of every preset of the installed families."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from barkit import Outcome, bar

LIMIT_SECONDS = 120.0


@bar("smoke", "every preset: train, save, resume, eval, sample, export, load in under 2 minutes")
def smoke(scratch: Path) -> Outcome:
    from voicehub.cli.preset_files import families, family_presets
    from voicehub.specs.registry import list_training_specs

    able = {spec.family for spec in list_training_specs() if spec.smoke_factory is not None}
    slowest, failed = ("", 0.0), []
    presets = [
        p.name
        for family in families()
        if family in able
        for p in family_presets(family)
        if _trains(p.name)
    ]
    for preset in presets:
        began = time.perf_counter()
        command = [sys.executable, "-m", "voicehub", "train", preset, "--smoke"]
        done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - began
        if seconds > slowest[1]:
            slowest = (preset, seconds)
        if done.returncode != 0 or seconds > LIMIT_SECONDS:
            reason = (done.stderr.strip().splitlines() or [""])[-1]
            failed.append(f"{preset} ({seconds:.0f} s, exit code {done.returncode}: {reason})")
    figure = f"{len(presets) - len(failed)} of {len(presets)} presets of {', '.join(sorted(able))}"
    figure += f", slowest {slowest[0]} in {slowest[1]:.0f} s"
    if failed:
        figure += f"; failed: {'; '.join(failed)}"
    return Outcome(figure, bool(presets) and not failed)


def _trains(preset: str) -> bool:
    """Whether the preset's model type can be trained: some are published for inference alone."""
    from voicehub.cli.compose import compose_preset
    from voicehub.specs.registry import get_training_spec

    composition = compose_preset(preset, [])
    parts = composition.stages or (composition,)
    return all(get_training_spec(part.values["model_type"]).has_training_recipe for part in parts)
