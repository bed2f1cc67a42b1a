"""What a launch says when it is stopped by Ctrl-C, or by who runs the machine."""

from __future__ import annotations

import signal
from importlib import import_module
from typing import Any

import pytest

from voicehub.cli.launch_plan import LaunchPlan
from voicehub.cli.launch_run import run_here
from voicehub.cli.output import EXIT_FAILED, Interrupted, report_failure


@pytest.mark.parametrize(
    ("plan", "command"),
    [
        (
            LaunchPlan(("train", "demo/tiny", "name=a b"), 2),
            "voicehub launch --nproc=2 -- train demo/tiny 'name=a b' resume=auto",
        ),
        (
            LaunchPlan(("train", "demo/tiny", "resume=true"), 4, 2, "one:29500", "7", 3),
            "voicehub launch --nproc=4 --nnodes=2 --rdzv-endpoint=one:29500 --rdzv-id=7 "
            "--max-restarts=3 -- train demo/tiny resume=true",
        ),
    ],
)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_launch_as_it_ends_train(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    plan: LaunchPlan,
    command: str,
    number: signal.Signals,
) -> None:
    api = import_module("torch.distributed.elastic.multiprocessing.api")

    def stopped(_: Any) -> None:
        raise api.SignalException("Process 1 got signal", sigval=number)

    monkeypatch.setattr("torch.distributed.run.run", stopped)
    with pytest.raises(Interrupted) as caught:
        run_here(plan)
    assert report_failure(caught.value, json_mode=False) == EXIT_FAILED
    said = capsys.readouterr().err
    assert said == f"Error: interrupted by {number.name}. Continue with:\n  {command}\n"
