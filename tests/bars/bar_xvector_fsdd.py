"""Real voices: four speakers to learn from, and two that are never seen."""

from __future__ import annotations

import dataclasses
import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from barkit import ROOT, Outcome, bar, shared_data, voicehub

SPEAKERS = ("george", "jackson", "nicolas", "theo")
KNOWN, ALL, MINUTES = 0.03, 0.13, 5.0
DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
LANGUAGES = ("en-us", "en", "en-gb-scotland", "en-gb-x-rp")
VARIANTS = ("f1", "f2", "f3", "f4", "f5", "m1", "m2", "m3", "m4", "m6", "m7", "m8")


def train(sources: list[Path], speakers: list[str], evaluation: Path, run: Path) -> dict[str, Any]:
    """Train the tiny preset; return minutes, and error rates of the averaged weights."""
    answer = voicehub(
        "train",
        "xvector/tiny",
        f"data.train=[{','.join(map(str, sources))}]",
        f"data.train_speakers=[{','.join(speakers)}]",
        f"training.output_dir={run}",
        "training.eval_strategy=no",
        "training.metric_for_best_model=null",
    )
    summary: dict[str, Any] = answer["summary"]
    metrics = voicehub("eval", summary["averaged_model_directory"], "--data", evaluation)["metrics"]
    return {**metrics, "minutes": float(summary["seconds"]) / 60.0}


def synthetic_digits(folder: Path) -> tuple[Path, list[str]]:
    """Ten digits by each of 96 synthetic voices; returns the manifest and the voices' names."""
    from voicehub_data.synthetic.voices import Voice

    jobs, rows = [], []
    settings = itertools.product(LANGUAGES, VARIANTS, ((150, 40, 35), (185, 62, 55)))
    for language, variant, (rate, pitch, swing) in settings:
        name = f"{language}-{variant}-{pitch}"
        voice = Voice(name, f"{language}+{variant}", rate, pitch, swing)
        for digit in DIGITS:
            path = folder / f"{name}-{digit}.flac"
            job = {"path": str(path), "text": digit, "voice": dataclasses.asdict(voice)}
            jobs.append({**job, "rate": rate, "pitch": pitch, "gain_db": -3.0})
            rows.append({"id": f"{name}-{digit}", "audio_filepath": path.name, "speaker": name})
    request = json.dumps({"jobs": jobs, "seed": 0})
    spoken = subprocess.run(
        [sys.executable, "-m", "voicehub_data.synthetic.speak"],
        input=request,
        capture_output=True,
        text=True,
        check=True,
    )
    frames = [row["frames"] for row in json.loads(spoken.stdout.splitlines()[-1])["spoken"]]
    manifest = folder / "voices.jsonl"
    lines = [
        json.dumps({**row, "duration": n / 16000}) for row, n in zip(rows, frames, strict=True)
    ]
    manifest.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return manifest, sorted({row["speaker"] for row in rows})


def speechbrain(data: Path, scratch: Path) -> dict[str, Any]:
    """The same model and data under speechbrain's own training code."""
    script = ROOT / "benchmarks" / "speechbrain_speakers.py"
    result = subprocess.run(
        [sys.executable, str(script), str(data), "--json"],
        capture_output=True,
        text=True,
        check=False,
        cwd=scratch,
    )
    if result.returncode != 0:
        raise RuntimeError(result.stderr.strip()[-2000:])
    found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return found


@bar(
    "xvector-fsdd",
    f"EER <= {KNOWN:.0%} among four seen speakers and <= {ALL:.0%} among six on 300 held-out real "
    f"recordings, within {MINUTES:g} minutes of training",
)
def xvector_fsdd(scratch: Path) -> Outcome:
    data = shared_data("fsdd")
    ours = train([data / "train.jsonl"], list(SPEAKERS), data / "test.jsonl", scratch / "run")
    passed = ours["known_eer"] <= KNOWN and ours["eer"] <= ALL and ours["minutes"] <= MINUTES
    theirs = speechbrain(data, scratch)
    (scratch / "voices").mkdir()
    manifest, voices = synthetic_digits(scratch / "voices")
    more = train(
        [data / "train.jsonl", manifest],
        [*SPEAKERS, *voices],
        data / "test.jsonl",
        scratch / "more",
    )
    figure = (
        f"{ours['known_eer']:.1%} seen, {ours['eer']:.1%} all, {ours['unseen_eer']:.1%} unseen in "
        f"{ours['minutes']:.1f} min; with {len(voices)} synthetic voices {more['known_eer']:.1%}, "
        f"{more['eer']:.1%}, {more['unseen_eer']:.1%}; speechbrain's Brain "
        f"{theirs['eer_seen']:.1%}, "
        f"{theirs['eer_all']:.1%}, {theirs['eer_unseen']:.1%}"
    )
    return Outcome(figure, passed, {"ours": ours, "synthetic": more, "speechbrain": theirs})
