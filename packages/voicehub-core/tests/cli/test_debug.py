"""``voicehub debug replay`` builds a run again from its directory and repeats a dumped update."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def broken_run(cli: Callable[..., Any], work: Path) -> Path:
    """A run that ended because one row of its manifest is beyond what float32 can square."""
    rows = [json.loads(line) for line in (work / "train.jsonl").read_text().splitlines()]
    rows[11]["x"] = [1e30] * 8
    (work / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    outcome = cli(
        "train", "toy/tiny", "data.train=train.jsonl", "training.output_dir=run",
        "training.max_nonfinite_steps=1", "training.use_cpu=true",
    )  # fmt: skip
    assert outcome.code == 1 and "r11" in outcome.stderr, outcome.stderr
    [dump] = (work / "run" / "nonfinite").iterdir()
    return dump


def test_a_dump_is_run_again_from_the_run_directory(cli: Any, work: Path) -> None:
    dump = broken_run(cli, work)
    before = sorted(path for path in (work / "run").rglob("*"))
    outcome = cli("debug", "replay", str(dump), "--json")
    assert outcome.code == 0, outcome.stderr
    replay = outcome.last_json["replay"]
    assert not replay["finite"]
    bad = [sample["id"] for sample in replay["samples"] if sample["loss"] == "inf"]
    assert bad == ["r11"]
    assert replay["nonfinite_gradients"] == ["line.weight"]
    assert replay["nonfinite_weights"] == []
    assert sorted(path for path in (work / "run").rglob("*")) == before, "the run was changed"


def test_people_read_which_sample_and_which_gradients(cli: Any, work: Path) -> None:
    dump = broken_run(cli, work)
    outcome = cli("debug", "replay", str(dump))
    assert outcome.code == 0, outcome.stderr
    assert "r11" in outcome.stdout
    assert "gradients that are not finite: line.weight\n" in outcome.stdout


def test_what_is_no_dump_is_wrong_use(cli: Any, work: Path) -> None:
    outcome = cli("debug", "replay", "run/nonfinite/step-3")
    assert outcome.code == 2 and "does not exist" in outcome.stderr
    (work / "elsewhere").mkdir()
    outcome = cli("debug", "replay", "elsewhere")
    assert outcome.code == 2 and "config.yaml" in outcome.stderr
