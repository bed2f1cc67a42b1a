"""The summary of a run as text and as JSON values."""

from __future__ import annotations

from pathlib import Path

from voicehub.cli.output import jsonable
from voicehub.reporting.summary import RunSummary, alerts_in


def summary() -> RunSummary:
    return RunSummary(
        name="run",
        family="toy",
        model_type="toy-line",
        device="cpu",
        steps=1200,
        seconds=125.0,
        training_loss=0.5,
        metrics={"eval_sentences_wer": 0.05, "eval_loss": 1.5},
        best=("wer", 0.04, 1000),
        skipped_steps=3,
        warnings=["a warning"],
        run_directory=Path("runs/a"),
        model_directory=Path("runs/a/final-model"),
        report=Path("runs/a/report.html"),
        next_command="voicehub transcribe x",
    )


def test_text_says_it_all_and_ends_with_the_next_command() -> None:
    lines = summary().text().splitlines()
    assert lines[0] == "Done: 1,200 steps in 02:05 on cpu."
    text = "\n".join(lines)
    assert "eval sentences wer  5.0 %" in text
    assert "best eval wer  4.0 % at step 1,000" in text
    assert "3 updates were skipped" in text and "warning: a warning" in text
    assert "model   runs/a/final-model" in text and "report  runs/a/report.html" in text
    assert lines[-1] == "Next: voicehub transcribe x"


def test_what_is_not_there_is_not_mentioned() -> None:
    text = RunSummary("r", "f", "m", "cpu", 1, 1.0, None).text()
    assert text == "Done: 1 steps in 00:01 on cpu."


def test_json_values() -> None:
    values = jsonable(summary().as_dict())
    assert values["best"] == ["wer", 0.04, 1000]
    assert values["report"] == "runs/a/report.html"


def test_alerts_are_listed_once() -> None:
    rows = [{"step": 1, "alert": "a"}, {"step": 2, "loss": 1.0}, {"step": 3, "alert": "a"}]
    assert alerts_in(rows) == ["a"]
