"""Files of `voicehub launch --to sbatch` before a real Slurm: it takes them, and runs them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from job_cases import cases
from private_slurm import NODES, Slurm, missing_programs, serve, wait_for

from voicehub.cli import launch
from voicehub.cli.launch_files import PORT
from voicehub.cli.launch_plan import LaunchPlan, parse_torchrun

Run = Callable[..., Any]
DATA = ("data.train=train.jsonl", "data.eval={test: test.jsonl}")
WORDS = ("train", "toy/tiny", *DATA, "name='it is \"quoted\" $HOME'")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    missing = missing_programs()
    if missing:
        why = f"{', '.join(missing)} not installed"
        if os.environ.get("VOICEHUB_REQUIRE_SLURM") == "1":
            pytest.fail(f"VOICEHUB_REQUIRE_SLURM=1, and {why}")
        pytest.skip(f"needs a Slurm: {why}")
    with serve(tmp_path_factory.mktemp("slurm")) as private:
        yield private


def rendered(cli: Run, *options: str, words: tuple[str, ...] = WORDS) -> Path:
    """The file that a command line writes."""
    file = Path("job.sbatch")
    outcome = cli("launch", *options, "--to", "sbatch", "--output", str(file), "--", *words)
    assert outcome.code == 0, outcome.stderr
    return file.absolute()


def test_every_combination_of_options_is_taken(
    cli: Run, work: Path, slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        launch, "settled", lambda plan: plan
    )  # the configuration is not in question
    found = {}
    for options in cases("sbatch"):
        file = rendered(cli, *options)
        done = slurm.run("sbatch", "--test-only", str(file), cwd=work)
        found[options] = (done.returncode, done.stderr)
    refused = {options: said for options, (code, said) in found.items() if code != 0}
    assert refused == {}
    where = {options: said.partition(" on nodes ")[2] for options, (_, said) in found.items()}
    assert all(
        said.startswith("127.0.0.[1-2] " if "--nnodes" in options else "127.0.0.1 ")
        for options, said in where.items()
    )


@pytest.mark.parametrize(
    ("options", "change", "why"),
    [
        (("--gpus", "H100", "--nproc", "9"), ("", ""), "node configuration is not available"),
        (("--nnodes", "3"), ("", ""), "configuration is not available"),
        (("--partition", "nowhere"), ("", ""), "invalid partition"),
        ((), ("--nodes=1", "--nodes=one"), "not a valid node count"),
        ((), ("--job-name", "--job-title"), "unrecognized option"),
    ],
)
def test_a_wrong_file_is_not(
    cli: Run, work: Path, slurm: Slurm, options: tuple[str, ...], change: tuple[str, str], why: str
) -> None:
    file = rendered(cli, *options)
    file.write_text(file.read_text().replace(*change))
    done = slurm.run("sbatch", "--test-only", str(file), cwd=work)
    assert done.returncode != 0 and why in done.stderr.lower()


def test_each_node_gets_the_command_the_setup_and_the_secret(
    cli: Run, work: Path, slurm: Slurm
) -> None:
    """On two nodes, with a stand-in for torchrun that shows its arguments and surroundings."""
    programs = work / "bin"
    programs.mkdir()
    (programs / "torchrun").write_text(
        '#!/bin/bash\nprintf "%s\\0" "$GREETING" "$KEY" "$PWD" "$@" > "$SHOWN/$SLURM_NODEID"\n'
    )
    (programs / "torchrun").chmod(0o755)
    folder = work / 'it\'s # a "dir"'  # with a backslash Slurm would take %j literally
    folder.mkdir()
    setup = ("--setup", "export GREETING='a b'", "--setup", f"export PATH={programs}:$PATH")
    options = ("--nnodes", "2", "--nproc", "3", "--directory", str(folder), "--env", "KEY", *setup)
    file = rendered(cli, *options)
    environment = {"SHOWN": str(work), "KEY": "of the one who submits"}
    job = slurm.submit(file, cwd=work, environment=environment)
    assert slurm.end_of(job) == "COMPLETED", (folder / f"voicehub-{job}.out").read_text()
    for node in range(len(NODES)):
        shown = (work / str(node)).read_text().split("\0")[:-1]
        assert shown[:3] == ["a b", "of the one who submits", str(folder)]
        wanted = LaunchPlan((*WORDS, "training.strategy=ddp"), 3, 2, f"{NODES[0]}:{PORT}", job)
        assert parse_torchrun(["torchrun", *shown[3:]]) == wanted
    job = slurm.submit(file, cwd=work, environment={"SHOWN": str(work)})
    assert slurm.end_of(job) == "FAILED"
    assert "set KEY before sbatch" in (folder / f"voicehub-{job}.out").read_text()


def test_a_job_trains_and_saves_when_slurm_tells_it_to_stop(
    cli: Run, work: Path, slurm: Slurm, child_environment: dict[str, str]
) -> None:
    """As before its time limit, with the signal sent by hand."""
    endless = ("training.max_steps=1000000000", "training.output_dir=made")
    path = f"{Path(sys.executable).parent}:$PATH"
    file = rendered(cli, "--setup", f"export PATH={path}", words=(*WORDS, *endless))
    job = slurm.submit(file, cwd=work, environment=child_environment)
    log = work / f"voicehub-{job}.out"
    wait_for(lambda: log.is_file() and "step" in log.read_text(), "the first update")
    assert slurm.run("scancel", "--signal=TERM", job, cwd=work).returncode == 0
    assert slurm.end_of(job) == "FAILED"  # as torchrun ends when it is told to stop
    said = log.read_text()
    (step,) = re.findall(r"interrupted; checkpoint-(\d+) is complete", said)
    assert int(step) > 0 and (work / f"made/checkpoint-{step}/.complete").is_file()
