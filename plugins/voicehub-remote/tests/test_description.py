"""What is run on a host, and that it is what the files for clusters say."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from voicehub_remote.description import Description, describe, name_of
from voicehub_remote.session import assignments, assignments_shown

from voicehub.cli.app import run
from voicehub.cli.launch_files import JobRequest
from voicehub.cli.launch_plan import LaunchPlan
from voicehub.cli.output import UsageError

pytestmark = pytest.mark.skipif(
    find_spec("voicehub_example") is None, reason="needs example/tiny of voicehub-example"
)

PLAN = LaunchPlan(("train", "example/tiny", "training.max_steps=5"))


def described(plan: LaunchPlan = PLAN, **values: Any) -> Description:
    return describe(plan, **{"name": None, **values})


def test_a_run_goes_on_by_itself_and_knows_where_it_writes() -> None:
    found = described()
    assert found.plan.words == ("train", "example/tiny", "training.max_steps=5", "resume=auto")
    assert (found.job.name, found.output) == ("example-tiny", "runs/example-tiny")
    assert found.command() == ["-m", "voicehub", *found.plan.words]
    mine = LaunchPlan((*PLAN.words, "resume=true", "training.output_dir=elsewhere"))
    assert described(mine).plan == mine
    assert described(mine).output == "elsewhere"


@pytest.mark.parametrize("name", ["root", "run", "on_end", "shown", "code"])
def test_variables_of_the_scripts_on_the_host_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"--env {name}: the scripts"):
        described(environment=[name])
    described(environment=["https_proxy", "HF_TOKEN"])


def test_several_processes_go_through_launch() -> None:
    words = described(LaunchPlan(PLAN.words, processes=2, max_restarts=1)).command()
    assert words[:6] == ["-m", "voicehub", "launch", "--nproc=2", "--max-restarts=1", "--"]
    assert words[6:] == [*PLAN.words, "training.strategy=ddp", "resume=auto"]


@pytest.mark.parametrize("kind", ["sbatch", "skypilot", "dstack"])
def test_files_for_clusters_come_from_the_same_description(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = described(name="mine", environment=["DEMO_NAME"], setup=["echo first"])
    own = ["--name", "mine", "--env", "DEMO_NAME", "--setup", "echo first"]
    assert run(["launch", "--to", kind, *own, "--", *found.plan.words]) == 0
    assert found.job_file(kind).rstrip() == capsys.readouterr().out.rstrip()


def test_configs_are_those_of_the_project(tmp_path: Path) -> None:
    preset = "family: example\nmodel_type: example-denoiser\nname: own\n"
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs/own.yaml").write_text(f"{preset}training:\n  output_dir: out\n")
    before = Path.cwd()
    found = described(LaunchPlan(("train", "own")), project=tmp_path)
    assert (found.output, found.job.name) == ("out", "own")
    assert Path.cwd() == before


def test_mistakes_are_found_before_anything_is_sent() -> None:
    with pytest.raises(UsageError, match="no_such_key"):
        described(LaunchPlan((*PLAN.words, "training.no_such_key=1")))
    with pytest.raises(UsageError, match="--name"):
        described(name="Not This")
    with pytest.raises(UsageError, match="--on-end-delay"):
        described(on_end_delay=3)


@pytest.mark.parametrize(
    "values",
    [
        {"on_end": "STOP_TOKEN=abc stop-it"},
        {"setup": ["export 'MY_API_KEY'=\"abc\""]},
        {"plan": LaunchPlan((*PLAN.words, "+hub_token=abc"))},
        {"on_end": "stop-it hf_0123456789abcdefghij"},
    ],
)
def test_credentials_are_not_written_down(values: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"credential|access token") as caught:
        described(**values)
    assert "abc" not in str(caught.value)


def test_values_of_variables_come_from_the_environment_alone() -> None:
    found = described(environment=["DEMO_ONE", "DEMO_TWO"], on_end="echo 'a long value'")
    with pytest.raises(UsageError, match="not set: DEMO_TWO"):
        found.secrets({"DEMO_ONE": "1"})
    with pytest.raises(UsageError, match="value of DEMO_TWO stands in the command") as caught:
        found.secrets({"DEMO_ONE": "1", "DEMO_TWO": "a long value"})
    assert "a long value" not in str(caught.value)
    values = {"DEMO_ONE": "1", "DEMO_TWO": "it's\ntwo"}
    assert found.secrets(values) == values
    assert assignments(values) == "export DEMO_ONE=1\nexport DEMO_TWO='it'\"'\"'s\ntwo'\n"
    assert "DEMO_ONE" in assignments_shown(values) and "two" not in assignments_shown(values)


def test_it_is_read_back_as_it_was() -> None:
    found = described(setup=["a 'b'"], on_end="x", on_end_delay=2)
    assert Description.from_json(found.to_json()) == found
    other = json.dumps({**json.loads(found.to_json()), "format": 2})
    for text in (other, "{", "[]", "{}"):
        with pytest.raises(UsageError, match=r"description\.json"):
            Description.from_json(text)


def test_names_of_runs() -> None:
    names = {
        "asr-ctc/tiny": "asr-ctc-tiny",
        "configs/My Run.yaml": "configs-my-run",
        "9/x" + "y" * 50: "xy" + "y" * 38,
        "///": "run",
    }
    for preset, name in names.items():
        assert name_of(preset)[:40] == name[:40]
        JobRequest(name_of(preset))
