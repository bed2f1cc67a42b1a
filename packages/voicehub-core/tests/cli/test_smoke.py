"""`voicehub train PRESET --smoke`: the whole path in a few updates, and failures named by step."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
DATA = ("data.train=train.jsonl", "data.eval={test: test.jsonl}")
STEPS = ["train", "save", "resume", "eval", "sample", "export", "load"]


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where smoke runs make their directories; the environment is put back afterwards."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    directory = tmp_path / "scratch"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return directory


def test_every_step_of_a_run_is_tried(cli: Run, work: Path, scratch: Path) -> None:
    evaluating = "training.eval_strategy=epoch"
    outcome = cli("train", "toy/tiny", *DATA, evaluating, "--smoke", "--json")
    assert outcome.code == 0, outcome.stderr
    smoke = outcome.last_json["smoke"]
    assert [step["name"] for step in smoke["steps"]] == STEPS
    details = {step["name"]: step["detail"] for step in smoke["steps"]}
    assert details["train"].startswith("4 updates")
    assert details["save"] == "2 checkpoints, every digest right"
    assert details["resume"].startswith("from checkpoint-2: 1 weight files bit-equal")
    assert "eval_loss" in details["eval"] and details["load"] == "ToyModel from final-model"
    assert not list(scratch.glob("voicehub-*")) and not (work / "runs").exists()


def test_a_chain_of_stages_is_cut_in_its_last_one(cli: Run, work: Path) -> None:
    (work / "staged.yaml").write_text("extends: toy/tiny\nstages:\n  one: {}\n  two: {}\n")
    outcome = cli("train", "staged.yaml", *DATA, "--smoke")
    assert outcome.code == 0, outcome.stderr
    assert "2 stages of 4 updates" in outcome.stdout and "All of it works" in outcome.stdout
    assert "stage 1 of 2, one: finished earlier" in outcome.stdout


def test_the_family_makes_data_and_tiny_shapes(cli: Run, site: Path, work: Path) -> None:
    (site / "toyfamily/smoke.py").write_text(
        "import json\n"
        "def tiny(values, directory):\n"
        '    assert values["model_type"] == "toy-line"\n'
        '    rows = [{"id": str(i), "x": [i / 9] * 8} for i in range(9)]\n'
        '    file = directory / "made.jsonl"\n'
        '    file.write_text("".join(json.dumps(row) + "\\n" for row in rows))\n'
        '    return [f"data.train={file}", "model.width=1"]\n'
    )
    specs = site / "toyfamily/specs.py"
    specs.write_text(
        specs.read_text().replace(
            "    config_class", '    smoke_factory="toyfamily.smoke:tiny",\n    config_class'
        )
    )
    outcome = cli("train", "toy/tiny", "--smoke")
    assert outcome.code == 0, outcome.stderr
    assert "trains 2 of 2 parameters" in outcome.stdout  # one weight and a bias
    assert "the preset evaluates nothing" in outcome.stdout


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "def _save_family_files",
            "def _save_family_files(self, directory):\n"
            "        import os, torch\n"
            "        self.model.line.bias.data += torch.frombuffer(bytearray(os.urandom(2)),"
            " dtype=torch.uint8)[:1]\n"
            "        self._save(directory)\n\n"
            "    def _save",
            "step 'resume': after resuming from checkpoint-2, model.safetensors differs",
        ),
        (
            'config["width"])\n',
            'config["width"])\n            raise DataError("the artifact does not load")\n',
            "step 'load': the artifact does not load",
        ),
    ],
)
def test_a_step_that_fails_is_named_and_its_files_stay(
    cli: Run, site: Path, scratch: Path, old: str, new: str, expected: str
) -> None:
    model = site / "toyfamily/model.py"
    assert old in model.read_text()
    model.write_text(model.read_text().replace(old, new))
    outcome = cli("train", "toy/tiny", *DATA, "--smoke")
    assert outcome.code == 1
    assert expected in outcome.stderr
    (kept,) = scratch.glob("voicehub-smoke-*")
    assert str(kept) in outcome.stderr and (kept / "whole/final-model").is_dir()


def test_failing_samples_fail_the_smoke_run(cli: Run, site: Path) -> None:
    experiment = site / "toyfamily/experiment.py"
    experiment.write_text(
        experiment.read_text().replace("        return [\n", "        return [1 / 0,\n", 1)
    )
    outcome = cli("train", "toy/tiny", *DATA, "--smoke")
    assert outcome.code == 1
    assert "step 'sample': Sample predictions failed: ZeroDivisionError" in outcome.stderr


def test_its_files_lie_where_it_says(cli: Run, site: Path) -> None:
    outcome = cli("train", "example/tiny", "--smoke", "training.output_dir=elsewhere")
    assert outcome.code == 2
    assert "leave out training.output_dir" in outcome.stderr
