"""Deploy, train, lose the connection, attach, kill the trainer, resume, fetch: over a real ssh."""

from __future__ import annotations

import contextlib
import hashlib
from importlib.util import find_spec
from pathlib import Path

import pytest
from loopback_sshd import Host
from remote_story import NAME, STEPS, VARIABLE, Story, tell_story

pytestmark = pytest.mark.skipif(
    find_spec("voicehub_example") is None, reason="needs example/tiny of voicehub-example"
)

_LARGE = 4_000_000  # of others, in the folder for temporary files


@pytest.fixture(scope="module")
def story(sshd: Host, tmp_path_factory: pytest.TempPathFactory) -> Story:
    with pytest.MonkeyPatch.context() as patch:
        return tell_story(sshd, tmp_path_factory.mktemp("story"), patch)


def test_a_lost_connection_is_taken_up_where_it_broke(story: Story) -> None:
    shown = story.shown("train")
    assert "connection lost; the run goes on" in shown
    steps = [line.split()[1] for line in shown.splitlines() if line.startswith("step ")]
    assert steps == [f"{step}/{STEPS}" for step in range(1, len(steps) + 1)]
    assert len(steps) >= 30


def test_attach_shows_what_came_meanwhile_and_the_rest(story: Story) -> None:
    lines = story.shown("attach").splitlines()
    assert [line for line in story.logs["first"].splitlines() if line not in lines] == []
    steps = [line.split()[1] for line in lines if line.startswith("step ")]
    assert len(steps) == len(set(steps)) >= 60


def test_the_exit_code_comes_back(story: Story) -> None:
    assert story.codes["attach"] == 137
    assert "ended with exit code 137" in story.shown("attach")
    assert "failed with exit code 137" in story.outputs["killed"]
    assert (story.codes["running"], story.codes["killed"]) == (0, 0)
    assert story.codes["resume"] == 0


def test_a_name_that_runs_is_not_started_twice(story: Story) -> None:
    assert "running (attempt 1" in story.outputs["running"]
    assert story.codes["twice"] == 1
    assert "voicehub remote attach" in story.outputs["twice"]


def test_the_newest_checkpoint_is_one_of_the_run(story: Story) -> None:
    assert story.codes["checkpoint"] == 0
    assert "runs/example-tiny/checkpoint-" in story.outputs["checkpoint"]
    assert "verified" in story.outputs["checkpoint"]


def test_the_same_command_goes_on_from_the_newest_checkpoint(story: Story) -> None:
    shown = story.outputs["resume"]
    assert "attempt 2" in shown and "continuing from checkpoint-" in shown
    assert f"step {STEPS}/{STEPS}" in shown and "step 3/" not in shown
    assert (story.output / "final-model").is_dir()
    assert (story.folder / "on-end").read_text() == "0\n"
    assert (story.host.home / "a place/it's here/it-ended").exists()


def test_the_secret_reached_the_trainer_and_nothing_else(story: Story) -> None:
    assert f"{VARIABLE}={story.secret}".encode() in story.trainer_environment.split(b"\0")
    assert story.places_of_secret == []
    told = [*story.outputs.values(), story.shown("train"), story.shown("attach")]
    assert not [text for text in told if story.secret in text]
    assert VARIABLE in story.outputs["dry run"]
    histories = list(Path.home().glob(".*history"))
    folders = [story.host.folder, story.project.parent, *story.new_in_temporary, *histories]
    read, found = 0, []
    for path in _files(folders):
        with contextlib.suppress(OSError):
            if path.stat().st_size > _LARGE:
                continue
            read += 1
            if story.secret.encode() in path.read_bytes():
                found.append(path)
    assert found == []
    assert read > 50
    assert story.folder / "run.sh" in set(_files(folders))


def test_fetch_brings_what_was_made_and_proves_it(story: Story, tmp_path: Path) -> None:
    here = tmp_path / "to here"
    result = story.told("fetch", "fetch", "--name", NAME, "--to", str(here))
    fetched = {path.relative_to(here).as_posix(): path for path in _files([here])}
    assert {"final-model/model.safetensors", "report.html", "metrics.jsonl", "remote/log"} <= set(
        fetched
    )
    assert not [name for name in fetched if "checkpoint" in name]
    for name, path in fetched.items():
        there = story.folder / "log" if name == "remote/log" else story.output / name
        assert _digest(path) == _digest(there)
    assert (result["ok"], len(result["files"]), result["same"]) == (True, len(fetched), 0)
    again = story.told("again", "fetch", "--name", NAME, "--to", str(here))
    assert (again["files"], again["same"]) == ([], len(fetched))

    metrics = fetched["metrics.jsonl"]
    metrics.write_bytes(metrics.read_bytes()[:100])  # older: what is there goes on from it
    fetched["report.html"].write_text("mine")
    story.tell("differs", "fetch", "--name", NAME, "--to", str(here))
    assert story.codes["differs"] == 1 and "report.html" in story.outputs["differs"]
    assert (fetched["report.html"].read_text(), metrics.stat().st_size) == ("mine", 100)
    one = ("--name", NAME, "--to", str(here), "--only", "metrics.*")
    assert len(story.told("grown", "fetch", *one)["files"]) == 1
    assert _digest(metrics) == _digest(story.output / "metrics.jsonl")
    story.tell("forced", "fetch", "--name", NAME, "--to", str(here), "--force")
    assert _digest(fetched["report.html"]) == _digest(story.output / "report.html")


def test_a_damaged_checkpoint_is_named_and_an_older_one_found(story: Story, tmp_path: Path) -> None:
    newest = story.output / f"checkpoint-{STEPS}"
    weights = newest / "model_state.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    try:
        result = story.told("damaged", "checkpoint", "--fetch", "--to", str(tmp_path))
    finally:
        weights.write_bytes(whole)
    assert [item["checkpoint"] for item in result["damaged"]] == [newest.name]
    assert "model_state.safetensors" in result["damaged"][0]["reason"]
    assert result["step"] == STEPS - 20
    fetched = tmp_path / f"checkpoint-{STEPS - 20}"
    assert _digest(fetched / weights.name) == _digest(story.output / fetched.name / weights.name)


def test_logs_are_those_of_all_attempts(story: Story) -> None:
    story.tell("logs", "logs", "--name", NAME, "-n", "0")
    assert story.outputs["logs"].count("] attempt ") == 2
    story.tell("last", "logs", "-n", "2")
    assert "the command for the end ended with exit code 0\n" in story.outputs["last"]
    assert "step" not in story.outputs["last"]


def _files(folders: list[Path]) -> list[Path]:
    found = [path for folder in folders for path in [folder, *folder.rglob("*")]]
    return [path for path in found if path.is_file() and not path.is_symlink()]


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
