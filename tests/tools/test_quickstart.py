"""The steps of the quickstart, their commands and their verdict, with commands stood in for."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import quickstart
from quickstart import Quickstart, StepFailed


class FakeVoicehub:
    """Leaves behind what each command would, and answers with the error rates given."""

    def __init__(self, out: Path, sentences: float, voices: float) -> None:
        self.out = out
        self.rates = {"eval_sentences": sentences, "eval_voices": voices}
        self.commands: list[list[str]] = []
        self.fail_at: str | None = None

    def __call__(self, command: Sequence[str]) -> dict[str, Any]:
        assert command[-1] == "--json"
        self.commands.append(list(command[1:-1]))
        if self.fail_at == command[1]:
            raise StepFailed(f"{command[1]} ended with exit code 1")
        answer: dict[str, Any] = getattr(self, command[1])(command[2:])
        return answer

    def data(self, arguments: Sequence[str]) -> dict[str, Any]:
        (self.out / "corpus").mkdir(parents=True)
        texts = {"train": "one two", "eval_sentences": "one four", "eval_voices": "two three"}
        for split, text in texts.items():
            row = {"audio_filepath": f"audio/{split}.flac", "text": text}
            (self.out / "corpus" / f"{split}.jsonl").write_text(json.dumps(row) + "\n")
        return {"rows": dict.fromkeys(texts, 1), "seconds": dict.fromkeys(texts, 2.0)}

    def train(self, arguments: Sequence[str]) -> dict[str, Any]:
        model = str(self.out / "run" / "final-model")
        return {"summary": {"seconds": 90.0, "steps": 300, "model_directory": model}}

    def eval(self, arguments: Sequence[str]) -> dict[str, Any]:
        return {"metrics": {"wer": self.rates[Path(arguments[2]).stem]}}

    def transcribe(self, arguments: Sequence[str]) -> dict[str, Any]:
        return {"transcriptions": [{"text": "two tree"}]}


@pytest.fixture
def fake(tmp_path: Path) -> FakeVoicehub:
    return FakeVoicehub(tmp_path, sentences=0.04, voices=0.12)


def test_the_steps_come_in_order_and_end_well(
    fake: FakeVoicehub, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = Quickstart(fake.out, run=fake, overrides=["training.seed=1"])
    assert steps.everything()
    assert [command[0] for command in fake.commands] == [
        "data",
        "train",
        "eval",
        "eval",
        "transcribe",
    ]
    assert fake.commands[1][-1] == "training.seed=1"
    assert steps.training_minutes == pytest.approx(1.5)
    assert steps.transcription["said"] == "two three"
    assert steps.transcription["heard"] == "two tree"
    assert steps.baseline == {"eval_sentences": 0.5, "eval_voices": 1.0}
    shown = capsys.readouterr().out
    assert shown.count("$ ") == len(fake.commands)
    assert str(fake.out / "run" / "report.html") in shown


def test_printed_commands_can_be_copied(
    fake: FakeVoicehub, capsys: pytest.CaptureFixture[str]
) -> None:
    Quickstart(fake.out, run=fake).everything()
    printed = [line[2:] for line in capsys.readouterr().out.splitlines() if line.startswith("$ ")]
    assert [shlex.split(line)[1:] for line in printed] == fake.commands


@pytest.mark.parametrize(
    ("sentences", "voices", "good"),
    [(0.10, 0.20, True), (0.101, 0.0, False), (0.0, 0.201, False), (1.0, 1.0, False)],
)
def test_an_error_rate_over_its_limit_fails(
    tmp_path: Path, sentences: float, voices: float, good: bool
) -> None:
    steps = Quickstart(tmp_path, run=FakeVoicehub(tmp_path, sentences, voices))
    assert steps.everything() is good


@pytest.mark.parametrize("step", ["data", "train", "eval", "transcribe"])
def test_a_failing_command_ends_the_quickstart(
    fake: FakeVoicehub, step: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.fail_at = step
    assert quickstart.main(["--out", str(fake.out), "--json"], run=fake) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out.splitlines()[-1]) == {
        "ok": False,
        "error": f"{step} ended with exit code 1",
    }
    assert fake.commands[-1][0] == step


def test_a_real_command_that_fails_is_reported_with_its_code() -> None:
    with pytest.raises(StepFailed, match="exit code 3"):
        quickstart.run_command([sys.executable, "-c", "raise SystemExit(3)"])
    answer = quickstart.run_command([sys.executable, "-c", "print('noise'); print('{\"a\": 1}')"])
    assert answer == {"a": 1}
