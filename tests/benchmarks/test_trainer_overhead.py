"""The overhead benchmark measures what it says; how fast anything is, is not judged here."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
import torch
import trainer_overhead
from trainer_overhead import SYSTEMS, Measurement, Run, TimedCollate, make_data, measure_once

STEPS = 100


@pytest.fixture(autouse=True)
def one_thread() -> object:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", SYSTEMS)
def test_each_system_makes_the_same_steps_and_learns(name: str) -> None:
    package = {"bare": "torch", "voicehub": "voicehub"}.get(name, name)
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: `nox -s bench` installs it")
    result = Measurement()
    losses = measure_once(SYSTEMS[name], make_data(STEPS), STEPS, result)
    assert len(losses) == STEPS // trainer_overhead.LOGGING_STEPS
    assert losses[0] < torch.log(torch.tensor(64.0)) + 0.2  # under the loss of guessing
    assert len(result.per_step) == 1
    assert result.per_step[0] > 0.0
    assert result.around[0] >= 0.0


def test_a_system_that_skips_steps_is_found_out() -> None:
    def lazy(
        model: torch.nn.Module,
        data: torch.utils.data.TensorDataset,
        collate: TimedCollate,
        steps: int,
        directory: Path,
    ) -> Run:
        collate([data[0]])
        return Run([])

    with pytest.raises(RuntimeError, match=r"1 batches were made for 100 steps"):
        measure_once(lazy, make_data(STEPS), STEPS, Measurement())


def test_a_system_that_does_not_learn_is_found_out() -> None:
    with pytest.raises(RuntimeError, match="did not fall"):
        trainer_overhead.check_that_it_trained("idle", [4.1] * 20, 2000)
    with pytest.raises(RuntimeError, match="losses were logged"):
        trainer_overhead.check_that_it_trained("mute", [], 2000)


def test_ratios_are_to_the_bare_loop(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        trainer_overhead.main(
            ["--steps", "120", "--rounds", "1", "--systems", "voicehub", "--json"]
        )
        == 0
    )
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    systems = report["systems"]
    assert systems["bare"]["ratio_to_bare"] == 1.0
    assert systems["voicehub"]["ratio_to_bare"] == pytest.approx(
        systems["voicehub"]["us_per_step"] / systems["bare"]["us_per_step"], rel=1e-3
    )
