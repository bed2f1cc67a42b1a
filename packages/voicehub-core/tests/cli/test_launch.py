"""`voicehub launch`: the torchrun command, what it parses back to, job files, and running it."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

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
JOB = JobRequest("toy-run", "H100", 8, 64, 90, "gpu", ("HF_TOKEN",), ("pip install x",))


def config_of(words: tuple[str, ...]) -> dict[str, Any]:
    return compose_preset(words[1], words[2:]).values


# -- the command -----------------------------------------------------------------------------


@given(
    words=st.lists(st.text(min_size=1).filter(lambda word: "\0" not in word), max_size=4),
    processes=st.integers(1, 64),
    nodes=st.integers(1, 9),
    restarts=st.integers(0, 3),
)
@settings(max_examples=60, deadline=None)
def test_a_rendered_command_parses_back_to_its_plan(
    words: list[str], processes: int, nodes: int, restarts: int
) -> None:
    several = {"endpoint": "host-1.x:29500", "run_id": "job7"} if nodes > 1 else {}
    plan = LaunchPlan(("train", "p", *words), processes, nodes, max_restarts=restarts, **several)
    assert parse_torchrun(shlex.split(shlex.join(plan.torchrun()))) == plan


@pytest.mark.parametrize("nodes", [1, 2])
def test_torchrun_itself_reads_the_same(nodes: int) -> None:
    torchrun = pytest.importorskip("torch.distributed.run")
    endpoint = None if nodes == 1 else "[fe80::1]:29500"
    plan = LaunchPlan(WORDS, 3, nodes, endpoint, max_restarts=2)
    read = torchrun.parse_args(plan.torchrun()[1:])
    assert (read.nnodes, read.nproc_per_node, read.max_restarts) == (str(nodes), "3", 2)
    assert (read.module, read.training_script) == (True, "voicehub")
    assert tuple(read.training_script_args) == WORDS
    assert read.standalone is (nodes == 1)
    assert nodes == 1 or read.rdzv_endpoint == endpoint


def test_the_printed_command_is_the_same_configuration(cli: Run, work: Path) -> None:
    outcome = cli("launch", "--nproc", "2", "--print", "--", *WORDS)
    assert outcome.code == 0, outcome.stderr
    plan = parse_torchrun(shlex.split(outcome.stdout))
    assert (plan.processes, plan.nodes) == (2, 1)
    # The one thing that several processes need and was not chosen.
    assert plan.words == (*WORDS, "training.strategy=ddp")
    wanted = config_of(WORDS)
    wanted["training"]["strategy"] = "ddp"
    assert config_of(plan.words) == wanted
    from_train = cli("train", *WORDS[1:], "--print-launch", "--nproc", "2")
    assert from_train.stdout == outcome.stdout
    assert not (work / "runs").exists()


def test_the_smoke_form_of_the_command(cli: Run, work: Path) -> None:
    outcome = cli("train", "toy/tiny", "data.scale=3", "--smoke", "--print-launch")
    plan = parse_torchrun(shlex.split(outcome.stdout))
    assert plan == LaunchPlan(("train", "toy/tiny", "data.scale=3", "--smoke"))
    assert config_of(plan.words[:3])["data"]["scale"] == 3
    several = cli("train", "toy/tiny", "--smoke", "--print-launch", "--nproc", "2")
    assert several.code == 2 and "is one process" in several.stderr


def test_a_chosen_strategy_and_resume_stay(cli: Run, work: Path) -> None:
    words = (*WORDS, "training.strategy=fsdp", "resume=true")
    command = cli("launch", "--nproc", "2", "--max-restarts", "1", "--print", "--", *words).stdout
    assert parse_torchrun(shlex.split(command)).words == words
    command = cli("launch", "--max-restarts", "1", "--print", "--", *WORDS).stdout
    assert parse_torchrun(shlex.split(command)).words == (*WORDS, "resume=auto")


def test_everything_that_is_missing_is_listed_before_a_launch(cli: Run, work: Path) -> None:
    outcome = cli("train", "toy/tiny", *DATA, "init_from=nowhere", "--print-launch")
    assert outcome.code == 1 and "init_from = nowhere" in outcome.stderr
    assert "torchrun" not in outcome.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--", "eval", "x"), "launch starts `voicehub train`, found eval x"),
        (("--", "train"), "needs a preset"),
        (("--nnodes", "2", "--print", "--", *WORDS), "must know where to meet"),
        (("--rdzv-endpoint", "h:1", "--", *WORDS), "there is one"),
        (("--nnodes", "2", "--rdzv-endpoint", "h", "--", *WORDS), "expected HOST:PORT"),
        (("--to", "lsf", "--", *WORDS), "expected one of sbatch, skypilot, dstack"),
        (("--output", "x", "--", *WORDS), "give --to as well"),
        (("--", "train", "toy/tiny", "training.max_step=3"), "Did you mean 'training.max_steps'"),
        (("--nproc", "2", "--", *WORDS, "training.strategy=torch"), "is for one process; 2 need"),
    ],
)
def test_wrong_use(cli: Run, words: tuple[str, ...], expected: str) -> None:
    outcome = cli("launch", *words)
    assert outcome.code == 2 and expected in outcome.stderr


def test_counts_without_print_launch_are_refused(cli: Run) -> None:
    outcome = cli("train", "toy/tiny", *DATA, "--nproc", "2")
    assert outcome.code == 2 and "voicehub launch --nproc N" in outcome.stderr


# -- job files -------------------------------------------------------------------------------


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
    text = FILES[to](plan, JOB)
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
    text = sbatch_file(LaunchPlan(WORDS, 8, 2), JOB)
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


def _slurm_answers() -> bool:
    """Whether its programs are here, and its controller is up; the first do not ask for it."""
    if shutil.which("sbatch") is None or shutil.which("scontrol") is None:
        return False
    asked = subprocess.run(["scontrol", "ping"], capture_output=True, text=True, check=False)
    return asked.returncode == 0 and " UP" in asked.stdout


def test_slurm_accepts_the_file(tmp_path: Path) -> None:
    if not _slurm_answers():
        pytest.skip("there is no Slurm to ask: only the structure of the file is checked")
    script = tmp_path / "job.sbatch"
    script.write_text(sbatch_file(LaunchPlan(WORDS, 1, 1), JobRequest("toy")))
    done = subprocess.run(["sbatch", "--test-only", script], capture_output=True, check=False)
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
    sky = yaml.safe_load(FILES["skypilot"](plan, JOB))
    assert SkyPilotTask.model_validate(sky).num_nodes == 2
    assert sky["resources"] == {"accelerators": "H100:8", "cpus": "8+", "memory": "64+"}
    assert sky["secrets"] == {"HF_TOKEN": None}
    dstack = yaml.safe_load(FILES["dstack"](plan, JOB))
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


# -- running ---------------------------------------------------------------------------------


def test_two_processes_train_a_chain_of_stages(cli_process: Run, work: Path) -> None:
    (work / "staged.yaml").write_text(
        "extends: toy/tiny\ntraining: {output_dir: chain, max_steps: 4}\n"
        "stages:\n  one: {}\n  two: {training: {learning_rate: 0}}\n"
    )
    outcome = cli_process("launch", "--nproc", "2", "--", "train", "staged.yaml", *DATA)
    assert outcome.code == 0, outcome.stderr
    assert outcome.stdout.startswith("$ torchrun --standalone --nnodes=1 --nproc-per-node=2 -m")
    assert outcome.stdout.count("Done: 4 steps") == 2  # one process speaks, of two stages
    record = json.loads((work / "chain/2-two/run.json").read_text())
    assert record["config"]["training"]["strategy"] == "ddp"
    assert record["init_from"]["path"] == "chain/1-one/final-model"
    models = [work / folder / "final-model" for folder in ("chain", "chain/1-one", "chain/2-two")]
    assert len({(model / "model.safetensors").read_bytes() for model in models}) == 1


def test_a_failing_run_names_the_first_rank_and_its_cause(
    cli_process: Run, site: Path, work: Path
) -> None:
    file = site / "toyfamily/experiment.py"
    file.write_text(
        file.read_text().replace(
            "        row = self.rows[index]\n",
            '        import os\n        if os.environ.get("RANK") == "1":\n'
            '            raise DataError("the disk of the second process is gone")\n'
            "        row = self.rows[index]\n",
        )
    )
    outcome = cli_process("launch", "--nproc", "2", "--", *WORDS)
    assert outcome.code == 1  # as torchrun itself
    last = outcome.stderr.splitlines()[-1]
    assert last.startswith("Error: rank 1 failed first: DataError:")
    assert "the disk of the second process is gone" in last
