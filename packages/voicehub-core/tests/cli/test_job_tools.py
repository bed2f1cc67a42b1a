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


def test_every_combination_of_options_is_taken(
    cli: Run, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        launch, "settled", lambda plan: plan
    )  # the configuration is not in question
    files = {}
    for to, ending in ENDINGS.items():
        for number, options in enumerate(cases(to)):
            file = work / f"{number}.{ending}"
            outcome = cli("launch", *options, "--to", to, "--output", str(file), "--", *WORDS)
            assert outcome.code == 0, outcome.stderr
            files[file.name] = options
    said = verdicts([work / name for name in files], work)
    assert {files[name]: verdict for name, verdict in said.items() if verdict is not None} == {}
    assert set(said) == set(files)


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


def test_wrong_files_are_not(cli: Run, work: Path) -> None:
    right = {}
    for to in ENDINGS:
        outcome = cli("launch", "--to", to, "--", *WORDS)
        right[to] = yaml.safe_load(outcome.stdout)
    for what, (to, change, _) in WRONG.items():
        (work / f"{what}.{ENDINGS[to]}").write_text(yaml.safe_dump({**right[to], **change}))
    said = verdicts([work / f"{what}.{ENDINGS[to]}" for what, (to, *_) in WRONG.items()], work)
    for what, (to, _, named) in WRONG.items():
        verdict = said[f"{what}.{ENDINGS[to]}"]
        assert verdict is not None and named in verdict, what
