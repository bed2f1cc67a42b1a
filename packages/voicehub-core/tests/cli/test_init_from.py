"""`init_from`: a run starts from the weights of an earlier one, and from nothing else of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

Run = Callable[..., Any]
DATA = ("data.train=train.jsonl", "data.eval={test: test.jsonl}")
NEXT = ("init_from=runs/toy", "training.output_dir=next")


@pytest.fixture
def earlier(cli: Run, work: Path) -> Path:
    """The run directory of a finished run."""
    assert cli("train", "toy/tiny", *DATA).code == 0
    return work / "runs/toy"


def test_the_run_starts_from_the_weights_and_names_file_and_hash(
    cli: Run, work: Path, earlier: Path
) -> None:
    outcome = cli("train", "toy/tiny", *DATA, *NEXT, "training.learning_rate=0")
    assert outcome.code == 0, outcome.stderr
    start = json.loads((work / "next/run.json").read_text())["init_from"]
    assert start["path"] == "runs/toy/final-model"
    assert f"Weights start from runs/toy/final-model (SHA-256 {start['sha256']})" in outcome.stderr
    before, after = (
        load_file(d / "final-model/model.safetensors") for d in (earlier, work / "next")
    )
    assert all(before[name].equal(after[name]) for name in before)


@pytest.mark.parametrize("resume", ["resume=true", "resume=runs/toy/checkpoint-12"])
def test_weights_and_a_checkpoint_together_are_refused(
    cli: Run, work: Path, earlier: Path, resume: str
) -> None:
    outcome = cli("train", "toy/tiny", *DATA, *NEXT, resume)
    assert outcome.code == 2 and "exclude each other" in outcome.stderr
    assert not (work / "next").exists()


def test_resume_auto_continues_only_what_started_from_the_same_weights(
    cli: Run, work: Path, earlier: Path
) -> None:
    assert cli("train", "toy/tiny", *DATA, *NEXT, "resume=auto").code == 0
    assert cli("train", "toy/tiny", *DATA, *NEXT, "resume=auto").code == 0
    other = cli(
        "train", "toy/tiny", *DATA, "init_from=next", "training.output_dir=next", "resume=auto"
    )
    assert other.code == 2 and "started from runs/toy/final-model" in other.stderr
    never = cli("train", "toy/tiny", *DATA, "init_from=next", "resume=auto")
    assert never.code == 2 and "started from random or pretrained weights" in never.stderr


def test_weights_that_do_not_fit_name_the_tensors(cli: Run, earlier: Path) -> None:
    outcome = cli("train", "toy/tiny", *DATA, *NEXT, "model=wide")
    assert outcome.code == 1
    assert "line.weight: this model (1, 8), the artifact (1, 4)" in outcome.stderr


def test_no_artifact_and_one_of_another_type(cli: Run, earlier: Path) -> None:
    nowhere = cli("train", "toy/tiny", *DATA, "init_from=nowhere", "training.output_dir=next")
    assert nowhere.code == 1 and "init_from = nowhere: there is no such" in nowhere.stderr
    config = earlier / "final-model/config.json"
    config.write_text(config.read_text().replace("toy-line", "toy-curve"))
    outcome = cli("train", "toy/tiny", *DATA, *NEXT)
    assert outcome.code == 2 and "holds a 'toy-curve'" in outcome.stderr
