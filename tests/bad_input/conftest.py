"""A small corpus that trains, for the tests to break one thing in."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from voicehub.cli.app import run

RATE = 16000
WORDS = ("one", "two", "six", "ten")
SMALL = (
    "model.hidden_size=16",
    "model.num_blocks=1",
    "model.attention_every=0",
    "model.num_heads=1",
    "training.max_steps=1",
)


@dataclass
class Outcome:
    """What a command line did."""

    code: int
    stdout: str
    stderr: str

    @property
    def text(self) -> str:
        return self.stdout + self.stderr

    @property
    def last_json(self) -> dict[str, Any]:
        value = json.loads(self.stdout.splitlines()[-1])
        assert isinstance(value, dict)
        return value


@dataclass
class Corpus:
    """Tones with words as transcripts; ``rows`` are written by ``write``."""

    directory: Path
    rows: list[dict[str, Any]] = field(default_factory=list)

    def clip(self, name: str, seconds: float = 0.8, rate: int = RATE) -> Path:
        path = self.directory / name
        time = np.arange(int(seconds * rate)) / rate
        pitch = 200 + 40 * (sum(map(ord, name)) % 10)
        sound = 0.3 * np.sin(2 * np.pi * pitch * time) * np.hanning(len(time))
        soundfile.write(path, sound.astype(np.float32), rate)
        return path

    def add(self, name: str, text: str = "one", seconds: float = 0.8, **extra: Any) -> None:
        self.rows.append(
            {"id": Path(name).stem, "audio_filepath": name, "duration": seconds, "text": text}
            | extra
        )

    def write(self, name: str = "train.jsonl") -> Path:
        path = self.directory / name
        path.write_text("".join(json.dumps(row) + "\n" for row in self.rows), encoding="utf-8")
        return path


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Corpus:
    """Twenty good clips, written as train.jsonl and eval.jsonl."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VOICEHUB_DEBUG", raising=False)
    made = Corpus(tmp_path)
    for n in range(20):
        made.clip(f"good-{n}.flac")
        made.add(f"good-{n}.flac", WORDS[n % 4])
    made.write("eval.jsonl")
    made.write()
    return made


@pytest.fixture
def voicehub(capfd: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run a command line in this process."""

    def invoke(*arguments: str) -> Outcome:
        capfd.readouterr()
        code = run(arguments)
        captured = capfd.readouterr()
        return Outcome(code, captured.out, captured.err)

    return invoke


@pytest.fixture
def train(voicehub: Callable[..., Outcome]) -> Callable[..., Outcome]:
    """One update of the small recogniser on train.jsonl, in JSON mode."""

    def invoke(*overrides: str, data: str = "train.jsonl", preset: str = "asr-ctc/tiny") -> Outcome:
        return voicehub(
            "train", preset, f"data.train={data}", "data.eval=eval.jsonl",
            "training.output_dir=run", *SMALL, *overrides, "--json",
        )  # fmt: skip

    return invoke
