"""The estimate that `voicehub train` tells at its start: beside the run, and never in its way."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo  # copies need it, and would each import it anew

from voicehub.cli import start_estimate, training_run
from voicehub.cli.start_estimate import StartEstimates
from voicehub.planning import aside, estimate
from voicehub.planning.capacity import Capacity
from voicehub.strategies.single import SingleProcessStrategy

Run = Callable[..., Any]
DATA = ("data.train=train.jsonl", "data.eval={test: test.jsonl}")
GIB = 2**30
STAGED = """
family: toy
model_type: toy-line
name: staged
training:
  output_dir: runs/staged
  use_cpu: true
  max_steps: 2
stages:
  head: {}
  whole:
    training: {ema_decay: 0.9}
"""


@pytest.fixture
def awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run waits for its estimate, which real ones do not, and lets it have the processor."""
    take = StartEstimates.take
    monkeypatch.setattr(aside, "NICENESS", 0)
    monkeypatch.setattr(StartEstimates, "take", lambda self, name, wait=0: take(self, name, 60))


@pytest.fixture
def roomy(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Set how much memory the machine has."""

    def have(free: int) -> None:
        capacity = Capacity("this machine", free, bf16=True)
        monkeypatch.setattr(start_estimate, "capacity_of", lambda *_, **__: capacity)

    return have


def told(outcome: Any) -> list[str]:
    lines = [line for line in outcome.stdout.splitlines() if "process grew" not in line]
    return [line for line in lines if line.startswith(("memory", "warning"))]


def measured(outcome: Any) -> list[str]:
    return [line for line in outcome.stdout.splitlines() if "process grew" in line]


def test_the_estimate_stands_beside_what_the_machine_has(
    cli: Run, awaited: None, roomy: Callable[[int], None]
) -> None:
    roomy(3 * GIB)
    outcome = cli("train", "toy/tiny", *DATA)
    assert outcome.code == 0, outcome.stderr
    (line,) = told(outcome)
    assert line.startswith("memory: 0.0 MiB estimated for the worst batch (8 samples), 3.00 GiB")
    assert outcome.stdout.index(line) < outcome.stdout.index("step 2/12")
    (beside,) = measured(outcome)
    assert "MiB in the first 10 updates" in beside and "0.0 MiB estimated" in beside
    assert outcome.stdout.index("step 8/12") < outcome.stdout.index(beside)


def test_a_machine_with_less_is_warned_of_and_trains(
    cli: Run, awaited: None, roomy: Callable[[int], None]
) -> None:
    roomy(100)
    outcome = cli("train", "toy/tiny", *DATA)
    assert outcome.code == 0
    _, warning = told(outcome)
    assert warning.startswith("warning: the worst batch may not fit: this machine has 0.0 MiB")
    assert "  1. " in outcome.stdout and "Done: 12 steps" in outcome.stdout


def test_advice_that_fails_ends_no_run(
    cli: Run, awaited: None, roomy: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise KeyError("encoder")

    roomy(100)
    monkeypatch.setattr(start_estimate, "how_to_fit", fails)
    outcome = cli("train", "toy/tiny", *DATA)
    assert outcome.code == 0, outcome.stderr
    assert told(outcome)[-1] == "memory: no advice: KeyError: 'encoder'"


@pytest.mark.usefixtures("awaited")
def test_a_run_is_the_same_bit_for_bit_with_it_and_without(cli: Run, work: Path) -> None:
    assert cli("train", "toy/tiny", *DATA, "training.output_dir=with").code == 0
    without = cli("train", "toy/tiny", *DATA, "training.output_dir=without", "--no-estimate")
    assert without.code == 0 and not told(without) and not measured(without)
    files = [path.relative_to(work / "with") for path in (work / "with").rglob("*.safetensors")]
    assert len(files) > 1
    for name in files:
        assert (work / "with" / name).read_bytes() == (work / "without" / name).read_bytes(), name
    rows = [
        [
            {key: value for key, value in json.loads(line).items() if "per_second" not in key}
            for line in (work / run / "metrics.jsonl").read_text().splitlines()
        ]
        for run in ("with", "without")
    ]
    assert [r.get("loss") for r in rows[0]] == [r.get("loss") for r in rows[1]]


def test_what_cannot_be_rehearsed_is_one_line(
    cli: Run, awaited: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def impossible(*_: Any, **__: Any) -> None:
        raise RuntimeError("shapes\nfrom numbers")

    monkeypatch.setattr(estimate, "planned_memory", impossible)
    outcome = cli("train", "toy/tiny", *DATA)
    assert outcome.code == 0
    assert told(outcome) == ["memory: not estimated: shapes from numbers"]


def test_a_run_does_not_wait_for_it(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy hangs; the run ends, and the copy with it."""
    started: list[int] = []
    fork = os.fork

    def forked() -> int:
        pid = fork()
        started.append(pid)
        return pid

    def hang(*_: Any, **__: Any) -> None:
        while True:
            time.sleep(60)

    monkeypatch.setattr(os, "fork", forked)
    monkeypatch.setattr(estimate, "planned_memory", hang)
    outcome = cli("train", "toy/tiny", *DATA)
    assert outcome.code == 0 and not told(outcome)
    deadline = time.monotonic() + 60
    while started[0] in aside._dying:
        aside._bury()
        assert time.monotonic() < deadline, "the copy is still there"
        time.sleep(0.01)


def test_every_stage_of_a_chain_is_estimated_from_the_first(
    cli: Run, work: Path, awaited: None, roomy: Callable[[int], None]
) -> None:
    roomy(GIB)
    preset = work / "configs" / "staged.yaml"
    preset.parent.mkdir()
    preset.write_text(STAGED)
    outcome = cli("train", "staged", *DATA)
    assert outcome.code == 0, outcome.stderr
    assert len(told(outcome)) == len(measured(outcome)) == 2


def test_of_several_processes_the_first_alone_estimates(
    cli: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Second(SingleProcessStrategy):
        is_primary = False

    @contextmanager
    def joined(args: Any) -> Iterator[Any]:
        yield Second(args)

    def never(*_: Any) -> None:
        raise AssertionError("the second process estimates")

    monkeypatch.setattr(training_run, "joined_processes", joined)
    monkeypatch.setattr(StartEstimates, "watching", never)
    outcome = cli("train", "toy/tiny", *DATA)
    assert outcome.code == 0, outcome.stderr


def test_a_run_out_of_memory_waits_for_what_may_explain_it(
    cli: Run, monkeypatch: pytest.MonkeyPatch, roomy: Callable[[int], None]
) -> None:
    roomy(100)
    waited: list[float] = []
    take = StartEstimates.take

    def taking(self: StartEstimates, name: str, wait: float = 0.0) -> Any:
        waited.append(wait)
        return take(self, name, 60) if wait else None

    def exhausted(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError("no more")

    monkeypatch.setattr(StartEstimates, "take", taking)
    monkeypatch.setattr(torch.nn.Linear, "forward", exhausted)
    monkeypatch.setattr(estimate, "planned_memory", _small)
    outcome = cli("train", "toy/tiny", *DATA)
    assert outcome.code == 1 and max(waited) > 0
    assert any(line.startswith("warning") for line in told(outcome))


def _small(*_: Any, **__: Any) -> Any:
    from types import SimpleNamespace

    memory = {"activations": 1000}
    parameters = SimpleNamespace(parts={})
    return SimpleNamespace(parameters=parameters, batch=("a",), memory=memory), memory
