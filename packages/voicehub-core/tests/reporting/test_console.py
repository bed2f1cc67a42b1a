"""The console: plain lines and the live panel."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from voicehub.reporting import figures
from voicehub.reporting.console import ConsoleCallback

Build = Callable[..., Any]
LOGS = {
    "loss": 2.5,
    "learning_rate": 1e-3,
    "grad_norm": 1.25,
    "audio_per_second": 321.5,
    "samples_per_second": 99.0,
    "data_wait": 0.031,
    "padding_waste": 0.08,
}


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_plain_lines_where_there_is_no_terminal(watched: Build) -> None:
    stream = io.StringIO()
    run = watched(ConsoleCallback("x", stream=stream))
    run.fire("on_train_begin")
    run.log(10, **LOGS)
    run.log(10, eval_wer=0.125, eval_loss=0.5, eval_runtime=3.0)
    run.fire("on_checkpoint_saved", checkpoint=Path("runs/a/checkpoint-10"))
    run.fire("on_alert", alert="loss-flat: nothing moves")
    run.fire("on_train_end")
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("step 10/100  loss 2.5  learning rate 1.00e-03  gradient norm 1.25")
    assert "audio s/s 321.5  waiting for data 3.1 %  padding waste 8.0 %  ETA" in lines[0]
    assert "samples/s" not in lines[0]  # seconds of audio say it better
    assert lines[1] == "evaluation 10/100  eval wer 12.5 %  eval loss 0.5"
    assert lines[2] == "saved checkpoint-10"
    assert lines[3] == "warning: loss-flat: nothing moves"
    assert "\x1b" not in stream.getvalue()


def test_routes_and_components_have_their_names(watched: Build) -> None:
    stream = io.StringIO()
    run = watched(ConsoleCallback(stream=stream))
    run.fire("on_train_begin")
    run.log(1, **{"loss": 1.0, "loss/kl": 0.5, "learning_rate/decoder": 0.1, "skipped_steps": 2})
    line = stream.getvalue()
    assert "loss (kl) 0.5" in line and "learning rate (decoder) 1.00e-01" in line
    assert "skipped steps 2" in line


def test_a_live_panel_on_a_terminal(watched: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = Terminal()
    run = watched(ConsoleCallback("quickstart", stream=stream))
    run.fire("on_train_begin")
    for step in range(1, 11):
        run.log(step, **{**LOGS, "loss": 5.0 / step})
    run.log(10, eval_wer=0.125)
    run.fire("on_checkpoint_saved", checkpoint=Path("checkpoint-10"))
    run.fire("on_train_end")
    shown = stream.getvalue()
    for text in (
        "quickstart",
        "step 10 of 100",
        "loss",
        "█",
        "1.00e-03",
        "321.5",
        "3.1 %",
        "8.0 %",
    ):
        assert text in shown
    assert "12.5 %" in shown and "saved checkpoint-10" in shown and "ETA" in shown


def test_an_alert_stays_above_the_panel(watched: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    stream = Terminal()
    run = watched(ConsoleCallback(stream=stream))
    run.fire("on_train_begin")
    run.fire("on_alert", alert="flat-loss: [nothing] moves")
    for step in range(4):  # the panel keeps three notes
        run.fire("on_checkpoint_saved", checkpoint=Path(f"checkpoint-{step}"))
    run.fire("on_train_end")
    shown = stream.getvalue()
    *_, last_frame = shown.split("training")
    assert "warning: flat-loss: [nothing] moves" in shown
    assert "flat-loss" not in last_frame


def test_an_error_gives_the_terminal_back(watched: Build) -> None:
    stream = Terminal()
    callback = ConsoleCallback(stream=stream)
    run = watched(callback)
    run.fire("on_train_begin")
    run.fire("on_train_error", error=RuntimeError("x"))
    assert "\x1b[?25h" in stream.getvalue()  # the cursor is shown again
    callback.close()  # twice does no harm


def test_other_processes_print_nothing(watched: Build) -> None:
    stream = Terminal()
    run = watched(ConsoleCallback(stream=stream))
    run.state.is_world_process_zero = False
    run.fire("on_train_begin")
    run.log(1, **LOGS)
    run.fire("on_alert", alert="flat-loss: nothing moves")
    assert stream.getvalue() == ""


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("loss", 0.123456, "0.1235"),
        ("loss", 12345.6, "12,346"),
        ("loss", float("nan"), "nan"),
        ("num_items", 1234567, "1,234,567"),
        ("eval_test_wer", 0.0512, "5.1 %"),
        ("learning_rate/x", 0.00025, "2.50e-04"),
    ],
)
def test_numbers(key: str, value: float, expected: str) -> None:
    assert figures.number(key, value) == expected


def test_spark_leaves_out_what_is_not_finite() -> None:
    assert figures.spark([1.0, float("nan"), 2.0]) == "▁█"
    assert figures.spark([float("inf")]) == ""
    assert len(figures.spark(range(100), width=10)) == 10


@pytest.mark.parametrize(("seconds", "text"), [(5, "00:05"), (65, "01:05"), (3725, "1:02:05")])
def test_clock(seconds: float, text: str) -> None:
    assert figures.clock(seconds) == text
