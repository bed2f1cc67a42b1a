"""`voicehub launch`: the torchrun command, what it parses back to, and running it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voicehub.cli.compose import compose_preset
from voicehub.cli.launch_plan import LaunchPlan, parse_torchrun

Run = Callable[..., Any]
DATA = ("data.train=train.jsonl", "data.eval={test: test.jsonl}")
WORDS = ("train", "toy/tiny", *DATA, "name='it is \"quoted\" $HOME'", "training.max_steps=4")


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
