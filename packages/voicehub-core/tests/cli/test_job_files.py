"""Job files of `voicehub launch --to`: what stands in them, and what is refused."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from voicehub.cli.compose import compose_preset
from voicehub.cli.launch_files import (
    FILES,
    DstackTask,
    JobRequest,
    SkyPilotTask,
    sbatch_file,
)
from voicehub.cli.launch_plan import LaunchPlan, parse_torchrun, refuse_secrets
from voicehub.cli.output import UsageError

Run = Callable[..., Any]
DATA = ("data.train=train.jsonl", "data.eval={test: test.jsonl}")
WORDS = ("train", "toy/tiny", *DATA, "name='it is \"quoted\" $HOME'", "training.max_steps=4")
JOB = JobRequest("toy-run", "H100", 8, 64, None, None, ("HF_TOKEN",), ("pip install x",))
# What only some of the tools have.
JOBS = {
    "sbatch": replace(JOB, minutes=90, partition="gpu"),
    "skypilot": JOB,
    "dstack": replace(JOB, minutes=90),
}


def config_of(words: tuple[str, ...]) -> dict[str, Any]:
    return compose_preset(words[1], words[2:]).values


def command_in(text: str, **variables: str) -> LaunchPlan:
    """The plan of the torchrun line of a file, once the cluster has set its variables."""
    line = next(line for line in text.splitlines() if "torchrun" in line)
    line = line[line.index("torchrun") :]
    for name, value in variables.items():
        line = line.replace(f"${name}", value)
    return parse_torchrun(shlex.split(line))


@pytest.mark.parametrize("nodes", [1, 4])
@pytest.mark.parametrize("to", sorted(FILES))
def test_the_command_in_a_file_is_the_plan(work: Path, to: str, nodes: int) -> None:
    plan = LaunchPlan(WORDS, 8, nodes, max_restarts=3)
    text = FILES[to](plan, JOBS[to])
    if to != "sbatch":
        document = yaml.safe_load(text)
        text = document["run"] if to == "skypilot" else "\n".join(document["commands"])
    meeting = {"head": "n1", "DSTACK_MASTER_NODE_IP": "n1"}
    names = ("SLURM_JOB_ID", "SKYPILOT_TASK_ID", "DSTACK_RUN_NAME")
    found = command_in(text, **meeting, **dict.fromkeys(names, "7"))
    place = {"endpoint": "n1:29500", "run_id": "7"} if nodes > 1 else {}
    assert found == LaunchPlan(WORDS, 8, nodes, max_restarts=3, **place)
    assert config_of(found.words) == config_of(WORDS)


def test_an_sbatch_file_is_a_script_with_its_options_first(tmp_path: Path) -> None:
    text = sbatch_file(LaunchPlan(WORDS, 8, 2), JOBS["sbatch"])
    lines = text.splitlines()
    assert lines[0] == "#!/bin/bash"
    options = [line for line in lines if line.startswith("#SBATCH ")]
    assert lines[1 : 1 + len(options)] == options  # Slurm stops reading at the first command
    assert all(re.fullmatch(r"#SBATCH --[a-z-]+=\S+", line) for line in options)
    assert {"--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=H100:8", "--mem=64G"} <= {
        option.removeprefix("#SBATCH ") for option in options
    }
    script = tmp_path / "job.sbatch"
    script.write_text(text)
    done = subprocess.run(["bash", "-n", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_sbatch_file_runs_torchrun_on_the_first_node(tmp_path: Path) -> None:
    """The script itself, with stand-ins for Slurm's programs that show their arguments."""
    programs = tmp_path / "bin"
    programs.mkdir()
    # More hosts than a pipe holds: nothing may stop reading after the first.
    stand_ins = {
        "scontrol": "printf 'node-a\\nnode-b\\n'; seq 99999",
        "srun": 'printf "%s\\n" "$@"',
    }
    for name, body in stand_ins.items():
        (programs / name).write_text(f"#!/bin/bash\n{body}\n")
        (programs / name).chmod(0o755)
    script = tmp_path / "job.sbatch"
    script.write_text(sbatch_file(LaunchPlan(WORDS, 8, 2), JobRequest("toy", environment=("KEY",))))
    slurm = {"SLURM_JOB_NODELIST": "node-[a-b]", "SLURM_JOB_ID": "42"}
    environment = {"PATH": f"{programs}:/usr/bin:/bin", **slurm}
    refused = subprocess.run(["bash", script], env=environment, capture_output=True, check=False)
    assert refused.returncode != 0 and b"set KEY before sbatch" in refused.stderr
    done = subprocess.run(
        ["bash", script],
        env={**environment, "KEY": "x"},
        capture_output=True,
        text=True,
        check=True,
    )
    plan = parse_torchrun(done.stdout.splitlines())
    assert plan == LaunchPlan(WORDS, 8, 2, endpoint="node-a:29500", run_id="42")


def test_yaml_files_hold_what_their_tools_ask_for_and_nothing_else() -> None:
    plan = LaunchPlan(WORDS, 8, 2)
    sky = yaml.safe_load(FILES["skypilot"](plan, JOBS["skypilot"]))
    assert SkyPilotTask.model_validate(sky).num_nodes == 2
    assert sky["resources"] == {"accelerators": "H100:8", "cpus": "8+", "memory": "64+"}
    assert sky["secrets"] == {"HF_TOKEN": None}
    dstack = yaml.safe_load(FILES["dstack"](plan, JOBS["dstack"]))
    assert DstackTask.model_validate(dstack).nodes == 2
    assert dstack["env"] == ["HF_TOKEN"] and dstack["type"] == "task"
    assert dstack["resources"] == {"gpu": "H100:8", "cpu": "8..", "memory": "64GB.."}
    assert dstack["max_duration"] == "90m"
    bare = yaml.safe_load(FILES["skypilot"](LaunchPlan(WORDS), JobRequest("toy")))
    assert set(bare) == {"name", "workdir", "num_nodes", "resources", "run"}
    with pytest.raises(ValueError, match="extra"):
        SkyPilotTask.model_validate({**sky, "num_node": 2})


@pytest.mark.parametrize(
    "word",
    [
        "data.access_token=abc",
        "+data.api_key=abc",
        "training.run_name=hf_abcdefghijklmnopqrstuvwx",
        "hf_abcdefghijklmnopqrstuvwx",
    ],
)
@pytest.mark.parametrize("to", sorted(FILES))
def test_a_secret_is_never_written_down(to: str, word: str) -> None:
    with pytest.raises(UsageError) as caught:
        FILES[to](LaunchPlan((*WORDS, word)), JOB)
    assert "abc" not in str(caught.value)
    setup = JobRequest("toy", setup=(f"export X_TOKEN={word}",))
    with pytest.raises(UsageError, match="credential"):
        FILES[to](LaunchPlan(WORDS), setup)
    refuse_secrets([*WORDS, "data.access_token="])


def test_a_value_for_an_environment_variable_is_refused_without_showing_it(cli: Run) -> None:
    outcome = cli("launch", "--to", "sbatch", "--env", "HF_TOKEN=hush", "--", *WORDS)
    assert outcome.code == 2
    assert "--env HF_TOKEN: give the name" in outcome.stderr and "hush" not in outcome.stderr


def test_a_file_is_written_with_the_way_to_submit_it(cli: Run, work: Path) -> None:
    outcome = cli("launch", "--nproc", "2", "--to", "dstack", "--output", "job/x.yml", "--", *WORDS)
    assert outcome.code == 0, outcome.stderr
    assert "submit it with: dstack apply -f job/x.yml" in outcome.stdout
    commands = yaml.safe_load((work / "job/x.yml").read_text())["commands"]
    assert commands[-1].endswith("training.strategy=ddp")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--to", "lsf"), "expected one of sbatch, skypilot, dstack"),
        (("--output", "x", "--cpus", "8"), "--cpus, --output: of a job file"),
        (("--env", "KEY"), "--env: of a job file, and none is asked for: give --to as well"),
        (("--to", "sbatch", "--rdzv-id", "7"), "meet where the cluster says"),
        (("--to", "sbatch", "--minutes", "2"), "which would be at once"),
        (("--to", "sbatch", "--gpus", "H100:8"), "expected a kind alone, such as H100"),
        (("--to", "sbatch", "--partition", "a b"), "expected NAME or NAME,NAME"),
        (("--to", "sbatch", "--directory", "a\n#SBATCH --exclusive"), "a path on one line"),
        (("--to", "sbatch", "--directory", ""), "a path on one line"),
        (("--to", "sbatch", "--name", "A"), "small letters, digits and dashes"),
        (("--to", "skypilot", "--minutes", "9"), "a SkyPilot task has no time limit"),
        (("--to", "skypilot", "--partition", "a"), "SkyPilot has none"),
        (("--to", "dstack", "--partition", "a"), "dstack has none"),
        (("--to", "dstack", "--name", "a"), "two characters or more"),
        (("--to", "dstack", "--directory", "a/b"), "an absolute path inside the container"),
    ],
)
def test_what_a_tool_would_misread_is_refused(
    cli: Run, options: tuple[str, ...], expected: str
) -> None:
    outcome = cli("launch", *options, "--", *WORDS)
    assert outcome.code == 2 and expected in " ".join(outcome.stderr.split())
