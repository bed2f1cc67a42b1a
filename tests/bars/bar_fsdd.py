"""Real recordings: six speakers say the ten digits."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from barkit import Outcome, bar, shared_data, voicehub

LIMIT = 0.05
MINUTES = 5.0
CHANCE = 0.8
"""Ten equally frequent words: a constant answer has a WER of 0.9; 0.8 leaves room for luck."""


def train(train_manifest: Path, eval_manifest: Path, run: Path) -> tuple[float, float]:
    """Train the tiny preset; returns WER on ``eval_manifest`` and minutes of training."""
    answer = voicehub(
        "train",
        "asr-ctc/tiny",
        f"data.train={train_manifest}",
        f"data.eval={eval_manifest}",
        f"training.output_dir={run}",
    )
    summary: dict[str, Any] = answer["summary"]
    report = voicehub("eval", summary["model_directory"], "--data", eval_manifest)
    return float(report["metrics"]["wer"]), float(summary["seconds"]) / 60.0


@bar("fsdd", f"WER <= 5 % on 300 held-out real recordings within {MINUTES:g} minutes of training")
def fsdd(scratch: Path) -> Outcome:
    data = shared_data("fsdd")
    wer, minutes = train(data / "train.jsonl", data / "test.jsonl", scratch / "run")
    return Outcome(f"{100 * wer:.2f} % in {minutes:.1f} min", wer <= LIMIT and minutes <= MINUTES)


@bar("fsdd-shuffled", f"with transcripts shuffled among the clips WER stays >= {100 * CHANCE:g} %")
def fsdd_shuffled(scratch: Path) -> Outcome:
    data = shared_data("fsdd")
    lines = (data / "train.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    texts = [row["text"] for row in rows]
    random.Random(0).shuffle(texts)
    for row, text in zip(rows, texts, strict=True):
        row["text"] = text
        row["audio_filepath"] = str(data / row["audio_filepath"])
    shuffled = scratch / "shuffled.jsonl"
    shuffled.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    wer, minutes = train(shuffled, data / "test.jsonl", scratch / "run")
    return Outcome(f"{100 * wer:.1f} % in {minutes:.1f} min", wer >= CHANCE)
