"""kill -9 at random moments, then the same command with resume=auto: equal to the last bit."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from barkit import ROOT, Outcome, Skipped, bar, shared_data

KILLS = 20
STEPS = 240
CLIPS = 400  # 8 or 9 batches an epoch, so that most kills fall in the middle of one
TIMED = ("time", "samples_per_second", "audio_per_second", "data_wait", "runtime")


def manifests(scratch: Path) -> tuple[Path, Path]:
    """A few real clips, or synthesised ones where the recordings are absent."""
    try:
        data = shared_data("fsdd")
    except Skipped:
        from barkit import voicehub

        voicehub("data", "synthesize", scratch / "corpus", "--minutes", "4")
        data = scratch / "corpus"
        train, evaluation = data / "train.jsonl", data / "eval_voices.jsonl"
    else:
        train, evaluation = data / "train.jsonl", data / "test.jsonl"
    return take(train, CLIPS, scratch / "train.jsonl"), take(evaluation, 40, scratch / "eval.jsonl")


def take(manifest: Path, rows: int, target: Path) -> Path:
    lines = manifest.read_text(encoding="utf-8").splitlines()
    chosen = random.Random(1).sample(lines, min(rows, len(lines)))
    with target.open("w", encoding="utf-8") as file:
        for line in chosen:
            row = json.loads(line)
            row["audio_filepath"] = str((manifest.parent / row["audio_filepath"]).resolve())
            file.write(json.dumps(row) + "\n")
    return target


def start(run: Path, data: tuple[Path, Path], workers: int, log: Path) -> subprocess.Popen[bytes]:
    command = [
        str(Path(sys.executable).parent / "voicehub"),
        "train",
        "asr-ctc/tiny",
        f"data.train={data[0]}",
        f"data.eval={data[1]}",
        "data.augment.gain.probability=0.5",
        "data.augment.speed.probability=0.5",
        f"training.output_dir={run}",
        f"training.max_steps={STEPS}",
        f"training.dataloader_num_workers={workers}",
        "training.save_strategy=steps",
        "training.eval_strategy=steps",
        "training.load_best_model_at_end=false",
        "training.save_steps=3",
        "training.save_total_limit=2",
        "training.eval_steps=60",
        "training.logging_steps=5",
        "resume=auto",
    ]
    file = log.open("ab")
    return subprocess.Popen(
        command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True, cwd=ROOT
    )


def finish(process: subprocess.Popen[bytes], log: Path) -> None:
    if process.wait() != 0:
        raise RuntimeError(f"training ended with {process.returncode}: {log.read_text()[-2000:]}")


def rows(run: Path) -> list[dict[str, Any]]:
    """Log rows without what tells the time."""
    return [
        {k: v for k, v in json.loads(line).items() if not k.endswith(TIMED)}
        for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    ]


def final_weights(run: Path) -> bytes:
    return (run / f"checkpoint-{STEPS}" / "model_state.safetensors").read_bytes()


@bar("resume", f"{KILLS} x kill -9 and resume=auto, 0 and 2 workers: weights, losses bit-equal")
def resume(scratch: Path) -> Outcome:
    data = manifests(scratch)
    began = time.monotonic()
    whole, log = scratch / "whole", scratch / "whole.log"
    finish(start(whole, data, 0, log), log)
    alone = time.monotonic() - began
    first_row = float(json.loads((whole / "metrics.jsonl").read_text().splitlines()[0])["time"])
    set_up = max(1.0, alone - (time.time() - first_row))

    rng = random.Random(0)
    cut, log = scratch / "cut", scratch / "cut.log"
    killed = 0
    while killed < KILLS:
        process = start(cut, data, rng.choice((0, 2)), log)
        # From the middle of the set-up to a little more than a fair share of the training.
        delay = rng.uniform(0.6 * set_up, set_up + 1.5 * (alone - set_up) / KILLS)
        try:
            process.wait(timeout=delay)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            killed += 1
        else:
            finish(process, log)
            break
    finish(start(cut, data, 2, log), log)
    same_weights = final_weights(whole) == final_weights(cut)
    same_rows = rows(whole) == rows(cut)
    figure = (
        f"{killed} kills; weights {'equal' if same_weights else 'DIFFER'}, "
        f"{len(rows(whole))} log rows {'equal' if same_rows else 'DIFFER'}"
    )
    return Outcome(figure, same_weights and same_rows and killed == KILLS)
