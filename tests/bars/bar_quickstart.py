"""The quickstart, from the spoken corpus to the exported model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from barkit import ROOT, Outcome, bar


@bar("quickstart", "WER <= 10 % unseen sentences, <= 20 % unseen voices, <= 5 min of training")
def quickstart(scratch: Path) -> Outcome:
    result = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "quickstart.py"), "--out", str(scratch), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    if not result.stdout.strip():
        raise RuntimeError(result.stderr.strip()[-2000:])
    report = json.loads(result.stdout.splitlines()[-1])
    if "error" in report:
        raise RuntimeError(report["error"])
    sentences, voices = report["wer"]["eval_sentences"], report["wer"]["eval_voices"]
    figure = (
        f"{100 * sentences:.2f} % sentences, {100 * voices:.2f} % voices, "
        f"{report['training_minutes']:.1f} min (guessing: "
        f"{100 * report['baseline']['eval_sentences']:.0f} %)"
    )
    return Outcome(figure, bool(report["ok"]), report)
