"""SkyPilot and dstack themselves read files of `voicehub launch --to`: `nox -s job_files`.

They need more packages than we do, and not the same; so they have an environment of their own,
whose interpreter ``VOICEHUB_JOB_TOOLS`` names. Elsewhere these tests are skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from job_cases import cases

from voicehub.cli import launch

Run = Callable[..., Any]
PYTHON = os.environ.get("VOICEHUB_JOB_TOOLS")
SCRIPT = Path(__file__).resolve().parents[4] / "tools" / "job_file_verdicts.py"
ENDINGS = {"skypilot": "skypilot.yaml", "dstack": "dstack.yml"}
WORDS = ("train", "toy/tiny", "data.train=train.jsonl", "name='it is \"quoted\" $HOME'")

pytestmark = pytest.mark.skipif(
    PYTHON is None, reason="SkyPilot and dstack have an environment of their own: nox -s job_files"
)


def verdicts(files: list[Path], home: Path) -> dict[str, str | None]:
    """What the tools say, by the name of the file."""
    own = {"HOME": str(home), "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}
    done = subprocess.run(
        [str(PYTHON), SCRIPT, *files],
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, str | None] = json.loads(done.stdout.splitlines()[-1])
    return {Path(path).name: verdict for path, verdict in said.items()}


WRONG: dict[str, tuple[str, Mapping[str, Any], str]] = {
    "an unknown field of a task": ("skypilot", {"num_node": 2}, "num_node"),
    "an unknown field of resources": ("skypilot", {"resources": {"gpu": "H100:8"}}, "gpu"),
    "no whole number of nodes": ("skypilot", {"num_nodes": "two"}, "two"),
    "a name for no machine": ("skypilot", {"name": "-a-"}, "name"),
    "an unknown field": ("dstack", {"node": 2}, "node"),
    "no node": ("dstack", {"nodes": 0}, "nodes"),
    "an accelerator without an order": ("dstack", {"resources": {"gpu": "H100:8:x"}}, "gpu"),
    "a time without a unit": ("dstack", {"max_duration": "soon"}, "max_duration"),
    "a name of one letter": ("dstack", {"name": "a"}, "name"),
}


def write_right(cli: Run, folder: Path) -> dict[str, tuple[str, ...]]:
    """Files of all combinations of options, and these by the name of the file."""
    written = {}
    for to, ending in ENDINGS.items():
        for number, options in enumerate(cases(to)):
            file = folder / f"{number}.{ending}"
            outcome = cli("launch", *options, "--to", to, "--output", str(file), "--", *WORDS)
            assert outcome.code == 0, outcome.stderr
            written[file.name] = options
    return written


def write_wrong(folder: Path) -> dict[str, str]:
    """Files with one thing wrong each, made of right ones; what must be named, by file."""
    written = {}
    for what, (to, change, named) in WRONG.items():
        right = yaml.safe_load((folder / f"0.{ENDINGS[to]}").read_text())
        file = folder / f"{what}.{ENDINGS[to]}"
        file.write_text(yaml.safe_dump({**right, **change}))
        written[file.name] = named
    return written


def test_every_combination_of_options_is_taken_and_wrong_files_are_not(
    cli: Run, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one call: to load the tools takes longer than to ask them."""
    monkeypatch.setattr(launch, "settled", lambda plan: plan)  # the configuration is right
    right = write_right(cli, work)
    wrong = write_wrong(work)
    said = verdicts([work / name for name in (*right, *wrong)], work)
    assert {right[name]: said[name] for name in right if said[name] is not None} == {}
    for name, named in wrong.items():
        verdict = said[name]
        assert verdict is not None and named in verdict, name
