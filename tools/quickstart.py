"""From nothing to a speech recogniser: what ``nox -s quickstart`` runs.

Speaks a corpus, trains on it, evaluates on sentences and on voices it never heard, transcribes a
file with the exported model, and says where everything is. Each command is printed before it runs
and can be copied; here it runs with ``--json``, so that its result can be read. Exit code 1 if a
command failed or an error rate is over its limit.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LIMITS = {"eval_sentences": 0.10, "eval_voices": 0.20}
"""Highest word error rate accepted for each evaluation split."""

SPLIT_NAMES = {"eval_sentences": "sentences", "eval_voices": "voices"}
"""What the evaluation splits are called in training: metrics become `eval_sentences_wer`, …"""

TITLES = {"eval_sentences": "unseen sentences", "eval_voices": "unseen voices"}


class StepFailed(Exception):
    """A command of the quickstart ended with an error, which it has printed itself."""


Run = Callable[[Sequence[str]], dict[str, Any]]
"""Runs a command that ends with one JSON object on its last line, and returns that."""


def run_command(command: Sequence[str]) -> dict[str, Any]:
    """The ``Run`` of a real quickstart; progress and errors of the command go to the screen."""
    result = subprocess.run(list(command), stdout=subprocess.PIPE, text=True, check=False)
    if result.returncode != 0:
        raise StepFailed(f"{shlex.join(command)} ended with exit code {result.returncode}")
    answer: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return answer


@dataclass
class Quickstart:
    """The steps in order; each leaves its results in fields that later ones read.

    ``model`` is the exported model: that directory alone is what `voicehub transcribe` needs.

    Args:
        out: directory that everything goes into; the corpus in it is reused, the run is not.
        run: how commands are run.
        overrides: further settings for ``voicehub train``.
    """

    out: Path
    run: Run = run_command
    overrides: Sequence[str] = ()
    model: Path = field(init=False)
    wer: dict[str, float] = field(default_factory=dict)
    baseline: dict[str, float] = field(default_factory=dict)
    training_minutes: float = 0.0
    transcription: dict[str, str] = field(default_factory=dict)

    @property
    def corpus(self) -> Path:
        return self.out / "corpus"

    @property
    def run_directory(self) -> Path:
        return self.out / "run"

    def manifest(self, split: str) -> Path:
        return self.corpus / f"{split}.jsonl"

    def everything(self) -> bool:
        """Run all steps; returns whether both error rates are within their limits."""
        self.speak()
        self.train()
        for split in LIMITS:
            self.evaluate(split)
        self.transcribe()
        self.report()
        return all(self.wer[split] <= limit for split, limit in LIMITS.items())

    def speak(self) -> None:
        heading("Speak a small English corpus with espeak-ng (found again on a second run)")
        made = self._voicehub("data", "synthesize", show(self.corpus))
        for split, seconds in made["seconds"].items():
            print(f"{split:16} {made['rows'][split]:5d} recordings {seconds / 60:6.1f} minutes")

    def train(self) -> None:
        heading("Train a recogniser on it, from random weights")
        evaluation = ",".join(
            f"{name}:{show(self.manifest(split))}" for split, name in SPLIT_NAMES.items()
        )
        answer = self._voicehub(
            "train",
            "asr-ctc/tiny",
            f"data.train={show(self.manifest('train'))}",
            f"data.eval={{{evaluation}}}",
            f"training.output_dir={show(self.run_directory)}",
            "training.overwrite_output_dir=true",
            *self.overrides,
        )
        summary = answer["summary"]
        self.model = Path(summary["model_directory"]).absolute()
        self.training_minutes = float(summary["seconds"]) / 60.0
        print(f"{summary['steps']} steps in {self.training_minutes:.1f} minutes")

    def evaluate(self, split: str) -> None:
        heading(f"Evaluate the exported model on {TITLES[split]}")
        answer = self._voicehub("eval", show(self.model), "--data", show(self.manifest(split)))
        self.wer[split] = float(answer["metrics"]["wer"])
        self.baseline[split] = self._guess(split)
        print(
            f"word error rate {percent(self.wer[split])} "
            f"(limit {percent(LIMITS[split])}; a guess of the most frequent sentence "
            f"{percent(self.baseline[split])})"
        )

    def transcribe(self) -> None:
        heading("Transcribe one recording of a voice it never heard")
        row = read_rows(self.manifest("eval_voices"))[0]
        audio = self.corpus / row["audio_filepath"]
        answer = self._voicehub("transcribe", show(audio), "--model", show(self.model))
        heard = answer["transcriptions"][0]["text"]
        self.transcription = {"file": str(audio), "said": row["text"], "heard": heard}
        print(f"said:  {row['text']}\nheard: {heard}")

    def report(self) -> None:
        heading("Where everything is")
        for what, path in self.places().items():
            print(f"{what:20} {show(path)}")
        print()
        for split, limit in LIMITS.items():
            verdict = "reached" if self.wer[split] <= limit else "MISSED"
            print(
                f"{TITLES[split]:20} WER {percent(self.wer[split]):>7}  "
                f"guessing {percent(self.baseline[split]):>7}  "
                f"limit {percent(limit):>7}  {verdict}"
            )
        print(f"{'training':20} {self.training_minutes:.1f} minutes")

    def places(self) -> dict[str, Path]:
        return {
            "corpus": self.corpus,
            "report": self.run_directory / "report.html",
            "metrics": self.run_directory / "metrics.jsonl",
            "configuration": self.run_directory / "config.yaml",
            "exported model": self.model,
        }

    def as_dict(self, ok: bool) -> dict[str, Any]:
        return {
            "ok": ok,
            "wer": self.wer,
            "limits": LIMITS,
            "baseline": self.baseline,
            "training_minutes": self.training_minutes,
            "transcription": self.transcription,
            "places": {what: str(path) for what, path in self.places().items()},
        }

    def _guess(self, split: str) -> float:
        from voicehub_data.synthetic.baseline import guess_baselines

        train = [row["text"] for row in read_rows(self.manifest("train"))]
        texts = [row["text"] for row in read_rows(self.manifest(split))]
        return guess_baselines(train, texts).most_frequent_sentence.word_error_rate

    def _voicehub(self, *arguments: str) -> dict[str, Any]:
        program = voicehub_program()
        print(f"$ {shlex.join([show(Path(program)), *arguments])}", flush=True)
        return self.run([program, *arguments, "--json"])


def heading(text: str) -> None:
    print(f"\n== {text}", flush=True)


def percent(value: float) -> str:
    return f"{100 * value:.2f} %"


def show(path: Path) -> str:
    """The path as a reader would type it: relative where it lies below this directory.

    With forward slashes everywhere, since a backslash is an escape in Hydra's overrides.
    """
    try:
        return path.relative_to(Path.cwd()).as_posix()
    except ValueError:
        return path.as_posix()


def voicehub_program() -> str:
    """The console script of the environment that runs this file."""
    name = "voicehub.exe" if os.name == "nt" else "voicehub"
    return os.fspath(Path(sys.executable).parent / name)


def read_rows(manifest: Path) -> list[dict[str, Any]]:
    lines = manifest.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.strip()]


def main(arguments: Sequence[str] | None = None, run: Run = run_command) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("overrides", nargs="*", help="settings for training, e.g. training.seed=1")
    parser.add_argument("--out", type=Path, default=ROOT / "quickstart")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    options = parser.parse_args(arguments)
    steps = Quickstart(options.out.absolute(), run=run, overrides=options.overrides)
    try:
        ok = steps.everything()
    except StepFailed as error:
        print(f"\nquickstart: {error}", file=sys.stderr)
        if options.json:
            print(json.dumps({"ok": False, "error": str(error)}))
        return 1
    if not ok:
        print("\nquickstart: a word error rate is over its limit", file=sys.stderr)
    if options.json:
        print(json.dumps(steps.as_dict(ok)))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
