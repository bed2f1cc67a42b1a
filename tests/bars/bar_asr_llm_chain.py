"""From sound to text without a network: the quickstart's encoder, a decoder of its words."""

from __future__ import annotations

import atexit
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from barkit import ROOT, Outcome, bar, voicehub
from chain_decoder import train_decoder

LIMIT = 0.15
MINUTES = 15.0
CHANCE = 0.8
"""Guessing the most frequent sentence has a WER of over 0.9; 0.8 leaves room for luck."""
#: Of the preset.
STAGES = ("projector", "lora")
#: Steps of a stage in the runs that are killed; a checkpoint every so many.
SHORT, SAVED = 24, 4


@dataclass(frozen=True)
class Bases:
    """What the chain starts from.

    Attributes:
        corpus: spoken sentences.
        encoder: a CTC recogniser.
        decoder: a causal language model with a chat template.
        figures: how good the two are.
    """

    corpus: Path
    encoder: Path
    decoder: Path
    figures: dict[str, Any]


@cache
def bases() -> Bases:
    """The quickstart, and a decoder trained on the corpus' text; once for all bars of a process."""
    folder = Path(tempfile.mkdtemp(prefix="bar-asr-llm-bases-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    report = quickstart(folder)
    texts = [row["text"] for row in rows_of(folder / "corpus" / "train.jsonl")]
    losses = train_decoder(texts, folder / "decoder")
    figures = {"encoder_wer": report["wer"], "decoder_loss": losses}
    encoder = Path(report["places"]["exported model"])
    return Bases(folder / "corpus", encoder, folder / "decoder", figures)


def quickstart(folder: Path) -> dict[str, Any]:
    """Run it; returns its report."""
    program = [sys.executable, str(ROOT / "tools" / "quickstart.py")]
    result = subprocess.run(
        [*program, "--out", str(folder), "--json"], capture_output=True, text=True, check=False
    )
    if not result.stdout.strip():
        raise RuntimeError(result.stderr.strip()[-2000:])
    report: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    if "error" in report:
        raise RuntimeError(report["error"])
    return report


def rows_of(manifest: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in manifest.read_text(encoding="utf-8").splitlines()]


def overrides(found: Bases, train: Path, run: Path) -> list[str]:
    """The command behind ``voicehub``: both stages of the preset, over fewer epochs."""
    return [
        "train",
        "asr-llm/tiny",
        f"model.encoder.path={found.encoder}",
        f"model.decoder.path={found.decoder}",
        f"data.train={train}",
        f"data.eval={found.corpus / 'eval_sentences.jsonl'}",
        "data.min_seconds=0.1",
        "data.metric_normalizer=basic",  # others make one word of a string of digits
        "training.num_train_epochs=5",
        f"training.output_dir={run}",
    ]


def train_chain(found: Bases, train: Path, run: Path) -> tuple[dict[str, float], float]:
    """Both stages; returns what the evaluation of unseen sentences says, and minutes."""
    began = time.perf_counter()
    voicehub(*overrides(found, train, run), cwd=run.parent)
    minutes = (time.perf_counter() - began) / 60.0
    report = voicehub("eval", run / "final-model", "--data", found.corpus / "eval_sentences.jsonl")
    metrics: dict[str, float] = report["metrics"]
    return metrics, minutes


@bar(
    "asr-llm-chain",
    f"projector, then LoRA between frozen parts: WER <= {100 * LIMIT:g} % on unseen sentences "
    f"within {MINUTES:g} minutes; each stage killed and resumed bit-equal",
)
def asr_llm_chain(scratch: Path) -> Outcome:
    found = bases()
    train = found.corpus / "train.jsonl"
    metrics, minutes = train_chain(found, train, scratch / "run")
    different = resumed_differences(found, train, scratch)
    resumed = "resumed bit-equal" if not different else f"resumed other: {different[0]}"
    figure = (
        f"{100 * metrics['wer']:.1f} % in {minutes:.1f} min, {int(metrics['failures'])} failures; "
        f"both stages {resumed}"
    )
    passed = metrics["wer"] <= LIMIT and minutes <= MINUTES and not different
    return Outcome(figure, passed, {**found.figures, "metrics": metrics, "different": different})


@bar(
    "asr-llm-chain-shuffled",
    f"with transcripts shuffled among the clips the chain's WER stays >= {100 * CHANCE:g} %",
)
def asr_llm_chain_shuffled(scratch: Path) -> Outcome:
    found = bases()
    rows = rows_of(found.corpus / "train.jsonl")
    texts = [row["text"] for row in rows]
    random.Random(0).shuffle(texts)
    for row, text in zip(rows, texts, strict=True):
        row["text"] = text
        row["audio_filepath"] = str(found.corpus / row["audio_filepath"])
    shuffled = scratch / "shuffled.jsonl"
    shuffled.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    metrics, minutes = train_chain(found, shuffled, scratch / "run")
    return Outcome(f"{100 * metrics['wer']:.1f} % in {minutes:.1f} min", metrics["wer"] >= CHANCE)


# -- killed and resumed --------------------------------------------------------------------


def resumed_differences(found: Bases, train: Path, scratch: Path) -> list[str]:
    """Run short stages whole, and killed once in each; returns the files that differ."""
    short = [
        *(f"stages.{stage}.training.max_steps={SHORT}" for stage in STAGES),
        "training.save_strategy=steps",
        f"training.save_steps={SAVED}",
        "training.eval_strategy=no",
        "training.load_best_model_at_end=false",
    ]
    whole, cut = scratch / "whole", scratch / "cut"
    voicehub(*overrides(found, train, whole), *short, cwd=scratch)
    for stage in range(len(STAGES)):
        kill_after(
            [*overrides(found, train, cut), *short, "resume=auto"],
            scratch,
            lambda stage=stage: _saved(cut, stage) >= 2 * SAVED,
        )
    voicehub(*overrides(found, train, cut), *short, "resume=auto", cwd=scratch)
    return [
        name
        for name in _weights(whole)
        if not (cut / name).is_file() or (whole / name).read_bytes() != (cut / name).read_bytes()
    ]


def _weights(run: Path) -> list[str]:
    """What is compared: trained weights of both stages."""
    found = [
        path.relative_to(run).as_posix()
        for stage in _folders(run)
        for path in sorted((stage / "final-model").rglob("*.safetensors"))
    ]
    if len(found) < len(STAGES):
        raise RuntimeError(f"{run} holds too few trained weights: {found}")
    return found


def _folders(run: Path) -> list[Path]:
    return [run / f"{place}-{stage}" for place, stage in enumerate(STAGES, start=1)]


def _saved(run: Path, stage: int) -> int:
    """Steps of the latest checkpoint of a stage; 0 while there is none."""
    steps = [
        int(path.name.rpartition("-")[2])
        for path in _folders(run)[stage].glob("checkpoint-*")
        if path.name.rpartition("-")[2].isdigit()
    ]
    return max(steps, default=0)


def kill_after(arguments: Sequence[Any], folder: Path, reached: Callable[[], bool]) -> None:
    """Start ``voicehub`` and kill it, as a power cut would, when a condition holds."""
    program = Path(sys.executable).parent / "voicehub"
    command = [str(program), *map(os.fspath, arguments)]
    with (folder / "killed.log").open("ab") as log:
        process = subprocess.Popen(
            command, cwd=folder, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        while process.poll() is None and not reached():
            time.sleep(0.05)
        if process.poll() is not None:
            said = (folder / "killed.log").read_text(encoding="utf-8", errors="replace")[-2000:]
            raise RuntimeError(f"the run ended by itself with {process.returncode}: {said}")
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
