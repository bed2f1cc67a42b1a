"""Wrong input of every kind: one clear message, the right exit code, JSON where asked for."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
DATA = ("data.train=train.jsonl",)


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (("trian",), 2, "train"),
        (("train",), 2, "PRESET"),
        (("train", "toy/tiny", "--no-such-option"), 2, "--no-such-option"),
        (("train", "toy/none", *DATA), 2, "There is no preset 'toy/none'"),
        (("train", "toy/tiny", *DATA, "training.max_stepz=1"), 2, "training.max_steps"),
        (("train", "toy/tiny", *DATA, "training.max_steps=few"), 2, "expected int"),
        (("train", "toy/tiny", *DATA, "training.lr_scheduler_type=cosin"), 2, "'cosine'? (command"),
        (("train", "toy/tiny", *DATA, "training.fp16=true", "training.bf16=true"), 2, "precision"),
        (("train", "toy/tiny"), 2, "data.train=VALUE"),
        (("train", "toy/tiny", "data.train=missing.jsonl"), 1, "missing.jsonl does not exist"),
        (("train", "toy/tiny", *DATA, "training.output_dir=train.jsonl/run"), 1, "output_dir=PATH"),
        (("presets", "tory"), 2, "Did you mean 'toy'"),
        (("eval", "nowhere-at/all/of/it", "--data", "test.jsonl"), 2, "does not exist"),
        (("train", "toy/tiny", *DATA, "--learning_rate", "1"), 2, "training.learning_rate=1e-3"),
        (("train", "tiny", *DATA), 2, " toy/tiny, "),
        (("transcribe", "missing.wav", "--model", "."), 2, "missing.wav"),
        (("transcribe", ".", "--model", "."), 2, "these are folders"),
        (("transcribe", "train.jsonl", "--model", "train.jsonl"), 2, "train.jsonl is a file"),
        (("new-plugin", "mine", "--output", "train.jsonl/x"), 2, "--output train.jsonl/x cannot"),
        (("eval", ".", "--data", "x", "--pictures", "train.jsonl"), 2, "--pictures train.jsonl"),
        (("transcribe", "train.jsonl", "--model", "."), 2, "config.json"),
        (("checkpoint", "show", "nowhere"), 2, "does not exist"),
        (("checkpoint", "verify", "."), 2, "holds no complete one"),
        (("checkpoint", "convert", "nowhere", "--output", "x"), 2, "is no directory"),
        (("toy", "count", "--", "-1"), 2, "Cannot count to -1"),
        (("toy", "count", "many"), 2, "to"),
        (("toy", "count", "101"), 1, "too far"),
    ],
)
def test_wrong_input(cli: Run, arguments: tuple[str, ...], code: int, expected: str) -> None:
    outcome = cli(*arguments)
    assert outcome.code == code
    assert expected in outcome.stderr
    assert "Traceback" not in outcome.stderr
    assert outcome.stdout == "" or "--help" in outcome.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("trian",),
        ("train",),
        ("train", "toy/none"),
        ("train", "toy/tiny", "training.max_stepz=1"),
        ("train", "toy/tiny", "data.train=missing.jsonl"),
        ("transcribe", "missing.wav", "--model", "."),
        ("toy", "count", "101"),
        ("toy", "crash"),
    ],
)
def test_a_failure_with_json_ends_with_one_object(cli: Run, arguments: tuple[str, ...]) -> None:
    outcome = cli(*arguments, "--json")
    answer = outcome.last_json
    assert answer["ok"] is False
    assert answer["error"]["exit_code"] == outcome.code != 0
    assert answer["error"]["message"]
    assert answer["error"]["type"]


def test_problems_of_a_configuration_are_listed_in_json(cli: Run) -> None:
    answer = cli("train", "toy/tiny", *DATA, "model.widht=1", "--json").last_json
    (problem,) = answer["error"]["problems"]
    assert problem["key"] == "model.widht"
    assert problem["nearest"] == "model.width"
    assert problem["kind"] == "unknown"
    assert problem["source"] == "command line: model.widht=1"


def test_an_unexpected_error_tells_where_its_traceback_is(cli: Run) -> None:
    outcome = cli("toy", "crash", "--json")
    assert outcome.code == 1
    assert "RuntimeError: the toy broke" in outcome.stderr
    assert "Traceback" not in outcome.stderr
    written = Path(outcome.last_json["error"]["traceback_file"])
    assert str(written) in outcome.stderr
    assert 'raise RuntimeError("the toy broke")' in written.read_text()
    written.unlink()


def test_debug_prints_the_traceback(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICEHUB_DEBUG", "1")
    assert "Traceback" in cli("toy", "count", "101").stderr


def test_a_traceback_of_training_lies_in_the_run_directory(
    cli: Run, work: Path, site: Path
) -> None:
    file = site / "toyfamily/experiment.py"
    text = file.read_text().replace("return len(self.rows)", "return 1 // 0")
    file.write_text(text)
    outcome = cli("train", "toy/tiny", *DATA, "--json")
    assert outcome.code == 1
    written = Path(outcome.last_json["error"]["traceback_file"])
    assert written.parent == Path("runs/toy")
    assert "ZeroDivisionError" in (work / written).read_text()


def test_a_plugin_that_does_not_import_breaks_only_its_own_command(
    cli: Run, planted: Callable[..., None]
) -> None:
    planted(
        "voicehub-rotten",
        {
            "voicehub.plugin_api": {"v1": "rotten"},
            "voicehub.commands": {"rotten": "rotten.app:app"},
        },
    )
    assert cli("toy", "count", "2").code == 0
    outcome = cli("rotten")
    assert outcome.code == 1
    assert "voicehub-rotten" in outcome.stderr and "No module named 'rotten'" in outcome.stderr


def test_an_experiment_factory_that_returns_something_else(cli: Run, site: Path) -> None:
    file = site / "toyfamily/experiment.py"
    file.write_text(file.read_text().replace("return experiment\n", "return 3\n"))
    outcome = cli("train", "toy/tiny", *DATA)
    assert outcome.code == 1
    assert "must return an Experiment, got int" in outcome.stderr


def slow_training(site: Path, work: Path, environment: dict[str, str]) -> subprocess.Popen[str]:
    """Start a run that goes on for long, and wait until it is in its loop."""
    file = site / "toyfamily/specs.py"
    file.write_text(file.read_text().replace(":build_experiment", ":build_slow_experiment"))
    program = "from voicehub.cli.app import main; main()"
    settings = ("training.max_steps=100000", "training.logging_steps=1", "training.save_steps=2")
    process = subprocess.Popen(
        [sys.executable, "-c", program, "train", "toy/tiny", *DATA, *settings, "--json"],
        cwd=work,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("step 5/"):
            return process
    raise AssertionError(process.communicate())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_stops_after_the_update_with_a_checkpoint(
    site: Path,
    work: Path,
    child_environment: dict[str, str],
    number: signal.Signals,
) -> None:
    process = slow_training(site, work, child_environment)
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=600)
    assert process.returncode == 1
    assert "Stopping after this update" in stderr
    assert "Traceback" not in stderr
    answer = json.loads(stdout.splitlines()[-1])
    assert answer["error"]["type"] == "Interrupted"
    message = answer["error"]["message"]
    newest = max(
        (work / "runs/toy").glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1])
    )
    last_row = json.loads((work / "runs/toy/metrics.jsonl").read_text().splitlines()[-1])
    assert newest.name == f"checkpoint-{last_row['step']}"
    assert newest.name in message
    assert (newest / ".complete").is_file()
    expected = "voicehub train toy/tiny data.train=train.jsonl training.max_steps=100000"
    assert expected in message and message.endswith("resume=auto")


def test_a_second_signal_stops_at_once(
    site: Path, work: Path, child_environment: dict[str, str]
) -> None:
    # One update takes the whole run here: only stopping at once can end it.
    file = site / "toyfamily/experiment.py"
    endless = "\n        while index == 7:\n            time.sleep(0.01)\n        row = "
    file.write_text(file.read_text().replace("\n        row = ", endless, 1))
    program = "from voicehub.cli.app import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "train", "toy/tiny", *DATA],
        cwd=work,
        env=child_environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    for line in process.stdout:
        if line.startswith("trains "):
            break
    process.send_signal(signal.SIGINT)
    for line in process.stderr:
        if "Stopping after this update" in line:
            break
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=600)
    assert process.returncode == 1
    assert "interrupted" in stderr and "Traceback" not in stderr
