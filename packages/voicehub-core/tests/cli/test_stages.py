"""`stages:` in a preset: a chain of runs, each from the weights of the one before."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from voicehub.cli.compose import compose_preset
from voicehub.errors import ConfigurationError

Run = Callable[..., Any]
DATA = ("data.train=train.jsonl", "data.eval={test: test.jsonl}")
STAGED = """extends: toy/tiny
name: staged
training:
  output_dir: runs/staged
stages:
  head:
    training: {max_steps: 8, learning_rate: 0.05}
  full:
    training: {max_steps: 12}
    data: {scale: 3.0}
  long:
    training: {max_steps: 6, learning_rate: 0.002}
"""


@pytest.fixture
def staged(work: Path) -> Path:
    """The chain's directory; the preset is called `staged`."""
    (work / "configs").mkdir()
    (work / "configs/staged.yaml").write_text(STAGED)
    return work / "runs/staged"


def config_of(directory: Path, stage: str) -> dict[str, Any]:
    record = json.loads((directory / stage / "run.json").read_text())
    assert isinstance(record, dict)
    return record


def weights(directory: Path) -> bytes:
    return (directory / "final-model/model.safetensors").read_bytes()


# -- composing -----------------------------------------------------------------------------


def settings(*overrides: str) -> dict[str | None, dict[str, Any]]:
    composed = compose_preset("staged", ["data.train=x", *overrides])
    return {stage.stage: stage.values for stage in composed.stages}


def test_a_stage_is_the_preset_with_its_own_settings_over_it(staged: Path) -> None:
    stages = settings()
    assert list(stages) == ["head", "full", "long"]
    assert [v["training"]["learning_rate"] for v in stages.values()] == [0.05, 0.01, 0.002]
    assert [v["data"]["scale"] for v in stages.values()] == [2.0, 3.0, 2.0]
    assert all("stages" not in v and v["model"] == {"width": 4} for v in stages.values())


def test_the_command_line_wins_over_all_stages_and_more_so_over_one(staged: Path) -> None:
    stages = settings("training.learning_rate=1", "stages.long.training.learning_rate=2")
    assert [v["training"]["learning_rate"] for v in stages.values()] == [1, 1, 2]
    stages = settings("training={max_steps: 2}", "~data.scale", "stages.full.data.scale=7")
    assert [v["training"]["max_steps"] for v in stages.values()] == [2, 2, 2]
    assert [v["data"].get("scale") for v in stages.values()] == [None, 7, None]
    assert list(settings("~stages.full")) == ["head", "long"]


def test_interpolations_follow_the_stage(staged: Path) -> None:
    file = staged.parent.parent / "configs/staged.yaml"
    file.write_text(STAGED + "data:\n  scale: ${training.max_steps}\n")
    assert [v["data"]["scale"] for v in settings().values()] == [8, 3.0, 6]


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        (
            "stages.hed.training.max_steps=1",
            r"no stage 'hed'.*head, full, long.*Did you mean 'head",
        ),
        ("stages.head.training.output_dir=x", r"stages\.head\.training\.output_dir' cannot be set"),
        ("stages.head.init_from=x", r"stages\.head\.init_from' cannot be set: .*stage before it"),
        ("stages.head.model_type=x", "all stages train one model"),
        ("stages.head=3", "must hold settings of the preset, found 3"),
    ],
)
def test_what_no_stage_may_say(staged: Path, override: str, expected: str) -> None:
    with pytest.raises(ConfigurationError, match=f"(?s){expected}"):
        settings(override)


@pytest.mark.parametrize(
    ("section", "expected"),
    [("{Head/1: {}}", "becomes the name of its folder"), ("[a]", "must map the name of each")],
)
def test_a_section_that_is_no_chain(staged: Path, section: str, expected: str) -> None:
    file = staged.parent.parent / "configs/staged.yaml"
    file.write_text(f"extends: toy/tiny\nstages: {section}\n")
    with pytest.raises(ConfigurationError, match=expected):
        settings()


def test_all_stages_are_checked_before_the_first_one_starts(cli: Run, staged: Path) -> None:
    file = staged.parent.parent / "configs/staged.yaml"
    file.write_text(STAGED.replace("scale: 3.0", "scal: 3.0").replace("0.002", "fast"))
    outcome = cli("train", "staged", *DATA, "--json")
    assert outcome.code == 2 and not staged.exists()
    error = outcome.last_json["error"]
    assert [p["key"] for p in error["problems"]] == ["data.scal", "training.learning_rate"]
    assert "stage 'full'" in error["message"] and "Did you mean 'data.scale'?" in error["message"]
    assert error["problems"][0]["source"] == "stages.full of configs/staged.yaml"


# -- running -------------------------------------------------------------------------------


def test_each_stage_starts_from_the_model_of_the_one_before(cli: Run, staged: Path) -> None:
    still = "stages.long.training.learning_rate=0"
    outcome = cli("train", "staged", *DATA, still, "--json")
    assert outcome.code == 0, outcome.stderr
    folders = ["1-head", "2-full", "3-long"]
    chain = outcome.last_json["chain"]
    assert [Path(stage["run_directory"]).name for stage in chain["stages"]] == folders
    assert [stage["steps"] for stage in chain["stages"]] == [8, 12, 6]
    assert outcome.last_json["summary"]["name"] == "staged-long"
    # What one stage came to is told before the next begins.
    told = [line for line in outcome.stderr.splitlines() if line.startswith(("stage ", "Done"))]
    assert [line.split()[0] for line in told] == ["stage", "Done:"] * 2 + ["stage"]
    assert config_of(staged, "1-head")["init_from"] is None
    for before, folder in itertools.pairwise(folders):
        start = config_of(staged, folder)["init_from"]
        assert start["path"] == f"runs/staged/{before}/final-model"
        digest = next(s for s in chain["stages"] if s["run_directory"].endswith(before))
        assert start["sha256"] == digest["model_sha256"]
        assert "model.safetensors" in start["files"]
    assert weights(staged) == weights(staged / "3-long") == weights(staged / "2-full")
    assert weights(staged / "2-full") != weights(staged / "1-head")
    report = cli("eval", "runs/staged", "--data", "test.jsonl", "--json")
    assert report.code == 0 and report.last_json["samples"] == 8


@pytest.mark.parametrize(("lost", "step"), [("1-head", 4), ("2-full", 8), ("3-long", 4)])
def test_a_chain_that_was_killed_continues_in_the_right_stage(
    cli: Run, staged: Path, lost: str, step: int
) -> None:
    assert cli("train", "staged", *DATA).code == 0
    whole = shutil.copytree(staged, staged.parent.parent / "whole")
    folders = ["1-head", "2-full", "3-long"]
    position = folders.index(lost)
    kill_in(staged, folders, position, step)
    outcome = cli("train", "staged", *DATA, "resume=auto", "--json")
    assert outcome.code == 0, outcome.stderr
    assert f"continuing from checkpoint-{step}" in outcome.stderr
    assert outcome.stderr.count("finished earlier") == position
    assert weights(staged) == weights(whole)
    for folder in folders:
        lines = [
            (directory / folder / "metrics.jsonl").read_text() for directory in (staged, whole)
        ]
        rows = [[json.loads(line) for line in text.splitlines()] for text in lines]
        found = [[(row["step"], row["loss"]) for row in part if "loss" in row] for part in rows]
        assert found[0] == found[1]
        sessions = config_of(staged, folder)["sessions"]
        assert len(sessions) == (2 if folder == lost else 1)  # finished stages did not run again


def kill_in(directory: Path, folders: list[str], position: int, step: int) -> None:
    """Leave what a kill in the middle of a stage would: nothing that came later."""
    for folder in folders[position + 1 :]:
        shutil.rmtree(directory / folder)
    for checkpoint in (directory / folders[position]).glob("checkpoint-*"):
        if int(checkpoint.name.split("-")[1]) > step:
            shutil.rmtree(checkpoint)
    shutil.rmtree(directory / folders[position] / "final-model")
    shutil.rmtree(directory / "final-model")
    record = json.loads((directory / "stages.json").read_text())
    record["finished"] = record["finished"][:position]
    (directory / "stages.json").write_text(json.dumps(record))


def test_a_finished_chain_trains_nothing_more(cli: Run, staged: Path) -> None:
    assert cli("train", "staged", *DATA).code == 0
    before = weights(staged)
    outcome = cli("train", "staged", *DATA, "resume=auto", "--json")
    assert outcome.code == 0, outcome.stderr
    assert outcome.last_json["summary"] is None
    assert len(outcome.last_json["chain"]["stages"]) == 3
    assert weights(staged) == before


def test_a_changed_earlier_stage_is_refused_with_what_differs(cli: Run, staged: Path) -> None:
    assert cli("train", "staged", *DATA).code == 0
    changed = ("stages.head.training.learning_rate=0.1", "resume=auto")
    outcome = cli("train", "staged", *DATA, *changed)
    assert outcome.code == 2
    assert "stage 'head': training.learning_rate was 0.05, now 0.1" in outcome.stderr
    assert "training.overwrite_output_dir=true" in outcome.stderr
    # What only watches may change.
    assert cli("train", "staged", *DATA, "training.logging_steps=1", "resume=auto").code == 0
    gone = cli("train", "staged", *DATA, "~stages.full", "resume=auto")
    assert gone.code == 2 and "stage 2 was 'full', now stage 'long'" in gone.stderr


def test_changed_weights_between_two_stages_are_refused(cli: Run, staged: Path) -> None:
    assert cli("train", "staged", *DATA, "~stages.long").code == 0
    shutil.copy(
        staged / "1-head/final-model/model.safetensors",
        staged / "2-full/final-model/model.safetensors",
    )
    outcome = cli("train", "staged", *DATA, "resume=auto")
    assert outcome.code == 2
    assert "2-full/final-model has changed since stage 'full' was finished" in outcome.stderr


def test_a_second_chain_in_the_same_directory(cli: Run, staged: Path) -> None:
    assert cli("train", "staged", *DATA).code == 0
    before = weights(staged)
    refused = cli("train", "staged", *DATA)
    assert refused.code == 2 and "holds 3 finished stages" in refused.stderr
    again = ("training.overwrite_output_dir=true", "training.seed=7")
    assert cli("train", "staged", *DATA, *again).code == 0
    assert weights(staged) != before


@pytest.mark.parametrize(
    ("resume", "expected"),
    [("resume=true", "no finished stage"), ("resume=x/checkpoint-3", "finds its place by itself")],
)
def test_nothing_to_resume(cli: Run, staged: Path, resume: str, expected: str) -> None:
    outcome = cli("train", "staged", *DATA, resume)
    assert outcome.code == 2 and expected in outcome.stderr


def test_the_chain_can_be_made_again_from_its_configuration(cli: Run, staged: Path) -> None:
    dry = cli("train", "staged", *DATA, "--dry-run")
    assert dry.code == 0 and not staged.exists()
    assert cli("train", "staged", *DATA).code == 0
    file = staged / "config.yaml"
    assert file.read_text().rstrip() == dry.stdout.rstrip()
    again = cli("train", "runs/staged/config.yaml", "training.output_dir=again")
    assert again.code == 0, again.stderr
    assert weights(staged) == weights(staged.parent.parent / "again")


def test_the_record_of_a_chain_that_cannot_be_read(cli: Run, staged: Path) -> None:
    assert cli("train", "staged", *DATA, "~stages.full", "~stages.long").code == 0
    (staged / "stages.json").write_text('{"format": 1, "fin')
    damaged = cli("train", "staged", *DATA, "resume=auto")
    assert damaged.code == 2 and "stages.json is damaged" in damaged.stderr
    (staged / "stages.json").write_text('{"format": 2, "finished": []}')
    newer = cli("train", "staged", *DATA, "resume=auto")
    assert newer.code == 2 and "has format 2" in newer.stderr
