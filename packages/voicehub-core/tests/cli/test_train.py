"""`voicehub train` from the command line to the files of a run, with the planted toy family."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
DATA = ("data.train=train.jsonl", "data.eval={test: test.jsonl}")


def rows_of(work: Path, run: str = "runs/toy") -> list[dict[str, Any]]:
    lines = (work / run / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def losses(rows: list[dict[str, Any]]) -> list[tuple[int, float]]:
    return [(row["step"], row["loss"]) for row in rows if "loss" in row]


def test_a_run_leaves_everything_it_promises(cli: Run, work: Path) -> None:
    outcome = cli("train", "toy/tiny", *DATA)
    assert outcome.code == 0, outcome.stderr
    run = work / "runs/toy"
    assert (run / "final-model/config.json").is_file()
    assert (run / "checkpoint-12/.complete").is_file()
    assert losses(rows_of(work))[-1][0] == 12
    text = outcome.stdout
    # Before the first update: what was kept and dropped, and what trains.
    before, after = text.split("step 2/12", 1)
    assert "2 too long" in before and "train: 8 kHz" in before
    assert "trains 5 of 5 parameters (100.0 %)" in before
    assert "learning rate" in before and "decay" in before
    # In training: the promised figures; at the end: summary, report, next command.
    for name in ("loss", "learning rate", "gradient norm", "audio s/s", "padding waste", "ETA"):
        assert name in after
    assert "Done: 12 steps" in after
    assert "runs/toy/report.html" in after
    assert "Next: voicehub transcribe FILE --model runs/toy/final-model" in after


def test_the_record_can_make_the_run_again(cli: Run, work: Path) -> None:
    assert cli("train", "toy/tiny", *DATA, "training.learning_rate=0.02").code == 0
    record = json.loads((work / "runs/toy/run.json").read_text())
    assert record["command"][:3] == ["voicehub", "train", "toy/tiny"]
    assert record["config"]["training"]["learning_rate"] == 0.02
    assert record["experiment"]["manifests"] == {"train": "0123abcd"}
    assert len(record["experiment"]["adapter"]["sha256"]) == 64
    assert record["packages"]["voicehub-toy"] == "1.2"
    assert "voicehub-core" in record["packages"] and "torch" in record["libraries"]
    assert record["sessions"][0]["resumed_from_step"] is None
    config = work / "runs/toy/config.yaml"
    again = cli("train", str(config), "training.output_dir=runs/again")
    assert again.code == 0, again.stderr
    assert losses(rows_of(work)) == losses(rows_of(work, "runs/again"))


def test_no_credential_reaches_the_record(cli: Run, work: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("SECRET_OF_THE_TEST", "from-the-environment")
    outcome = cli("train", "toy/tiny", *DATA, "data.access_token=hush-hush")
    assert outcome.code == 0
    for name in ("run.json", "config.yaml", "report.html"):
        text = (work / "runs/toy" / name).read_text()
        assert "hush-hush" not in text and "from-the-environment" not in text
    assert "(not recorded)" in (work / "runs/toy/run.json").read_text()


def test_json_ends_with_one_object_and_nothing_else_on_standard_output(cli: Run) -> None:
    outcome = cli("train", "toy/tiny", *DATA, "--json")
    assert outcome.code == 0
    assert len(outcome.stdout.splitlines()) == 1
    summary = outcome.last_json["summary"]
    assert outcome.last_json["ok"] is True
    assert summary["steps"] == 12
    assert set(summary["metrics"]) == {"eval_loss"}
    assert summary["report"] == "runs/toy/report.html"
    assert "step 2/12" in outcome.stderr


def test_dry_run_prints_the_resolved_configuration_and_writes_nothing(cli: Run, work: Path) -> None:
    outcome = cli("train", "toy/tiny", *DATA, "--dry-run", "model=wide")
    assert outcome.code == 0
    assert "width: 8" in outcome.stdout
    assert not (work / "runs").exists()
    config = cli("train", "toy/tiny", *DATA, "--dry-run", "--json").last_json["config"]
    assert config["data"]["train"] == "train.jsonl"


def test_evaluation_in_training_and_best_model(cli: Run, work: Path) -> None:
    settings = ("training.eval_strategy=steps", "training.eval_steps=4")
    best = ("training.load_best_model_at_end=true", "training.metric_for_best_model=loss")
    outcome = cli("train", "toy/tiny", *DATA, *settings, *best, "--json")
    assert outcome.code == 0, outcome.stderr
    name, value, step = outcome.last_json["summary"]["best"]
    assert name == "loss" and step in (4, 8, 12)
    final = outcome.last_json["summary"]["metrics"]["eval_loss"]
    assert final == pytest.approx(value)  # the weights that were saved are the best ones


def test_without_an_evaluation_in_training_nothing_is_best_and_a_misspelt_metric_is_told(
    cli: Run,
) -> None:
    settings = ("training.eval_strategy=steps", "training.eval_steps=100")
    steps = ("training.save_strategy=steps", "training.save_steps=100")
    best = ("training.load_best_model_at_end=true", "training.metric_for_best_model=lss")
    outcome = cli("train", "toy/tiny", *DATA, *settings, *steps, *best, "--json")
    assert outcome.code == 0, outcome.stderr
    assert "No evaluation was finite" not in outcome.stderr
    assert "no evaluation was due during training" in outcome.stderr
    told = " ".join(outcome.last_json["summary"]["warnings"])
    assert "metric_for_best_model='lss' was not computed" in told
    assert "Did you mean" in told


def test_a_skipped_update_names_its_samples_once(cli: Run, work: Path) -> None:
    rows = [json.loads(line) for line in (work / "train.jsonl").read_text().splitlines()]
    rows[3]["x"] = [float("nan")] * 8
    (work / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    outcome = cli("train", "toy/tiny", *DATA, "--json")
    assert outcome.code == 0, outcome.stderr
    skipped = [line for line in outcome.stderr.splitlines() if "Update skipped" in line]
    assert len(skipped) == outcome.last_json["summary"]["skipped_steps"] > 0
    assert skipped[0].startswith("warning: Update skipped") and "r3" in skipped[0]


def test_the_last_evaluation_is_not_made_twice(cli: Run, work: Path) -> None:
    settings = ("training.eval_strategy=steps", "training.eval_steps=4")
    assert cli("train", "toy/tiny", *DATA, *settings).code == 0
    evaluations = [row["step"] for row in rows_of(work) if "eval_loss" in row]
    assert evaluations == [4, 8, 12]


def test_a_second_run_into_the_same_directory_is_refused_with_the_ways_out(
    cli: Run, work: Path
) -> None:
    assert cli("train", "toy/tiny", *DATA).code == 0
    outcome = cli("train", "toy/tiny", *DATA)
    assert outcome.code == 2
    for way in ("resume=auto", "training.output_dir=PATH", "training.overwrite_output_dir=true"):
        assert way in outcome.stderr
    averages = work / "runs/toy/final-model-ema"
    averages.mkdir()
    assert cli("train", "toy/tiny", *DATA, "training.overwrite_output_dir=true").code == 0
    assert not averages.exists()  # they were of the weights that are replaced now


@pytest.mark.parametrize("resume", [(), ("resume=auto",)])
def test_a_model_without_checkpoints_is_not_replaced_unasked(
    cli: Run, work: Path, resume: tuple[str, ...]
) -> None:
    model = work / "runs/toy/final-model/model.safetensors"
    model.parent.mkdir(parents=True)
    model.write_bytes(b"of an earlier run")
    (work / "runs/toy/report.html").touch()
    outcome = cli("train", "toy/tiny", *DATA, *resume)
    assert outcome.code == 2
    assert "runs/toy holds final-model and report.html of an earlier run" in outcome.stderr
    for way in ("training.output_dir=PATH", "training.overwrite_output_dir=true"):
        assert way in outcome.stderr
    assert "resume=auto" not in outcome.stderr  # there is nothing to continue from
    assert model.read_bytes() == b"of an earlier run"


@pytest.mark.parametrize("damage", ["cut off", "one byte"])
def test_a_damaged_newest_checkpoint_is_refused_with_the_sound_one_before(
    cli: Run, work: Path, damage: str
) -> None:
    assert cli("train", "toy/tiny", *DATA).code == 0
    file = work / "runs/toy/checkpoint-12/model_state.safetensors"
    content = file.read_bytes()
    cut_off = damage == "cut off"
    file.write_bytes(content[:-1] if cut_off else bytes([content[0] ^ 1]) + content[1:])
    outcome = cli("train", "toy/tiny", *DATA, "resume=auto")
    assert outcome.code == 1
    assert "model_state.safetensors" in outcome.stderr
    assert "The newest sound one is checkpoint-8" in outcome.stderr
    # What needs no reading is found before the data is.
    assert ("2 too long" in outcome.stdout) is not cut_off
    words = next(word for word in outcome.stderr.split() if word.startswith("resume="))
    again = cli("train", "toy/tiny", *DATA, words)
    assert again.code == 0, again.stderr
    assert "continuing from checkpoint-8 (step 8)" in again.stdout


def test_resume_auto_continues_as_if_never_stopped(cli: Run, work: Path) -> None:
    assert cli("train", "toy/tiny", *DATA, "resume=auto", "training.output_dir=whole").code == 0
    assert cli("train", "toy/tiny", *DATA, "resume=auto", "training.output_dir=part").code == 0
    # A kill after checkpoint 8: later checkpoints, the model and the last rows' tail are not there.
    shutil.rmtree(work / "part/checkpoint-12")
    shutil.rmtree(work / "part/final-model")
    metrics = work / "part/metrics.jsonl"
    metrics.write_text(metrics.read_text() + '{"step": 13, "lo')
    outcome = cli("train", "toy/tiny", *DATA, "resume=auto", "training.output_dir=part")
    assert outcome.code == 0, outcome.stderr
    assert "continuing from checkpoint-8 (step 8)" in outcome.stdout
    whole, part = rows_of(work, "whole"), rows_of(work, "part")
    assert losses(part) == losses(whole)
    assert [set(row) for row in part] == [set(row) for row in whole]
    weights = "final-model/model.safetensors"
    assert (work / "part" / weights).read_bytes() == (work / "whole" / weights).read_bytes()
    sessions = json.loads((work / "part/run.json").read_text())["sessions"]
    assert [session["resumed_from_step"] for session in sessions] == [None, 8]


def test_resume_auto_of_a_finished_run_finishes_again(cli: Run, work: Path) -> None:
    assert cli("train", "toy/tiny", *DATA).code == 0
    before = losses(rows_of(work))
    shutil.rmtree(work / "runs/toy/final-model")  # killed just before the model was written
    outcome = cli("train", "toy/tiny", *DATA, "resume=auto")
    assert outcome.code == 0, outcome.stderr
    assert (work / "runs/toy/final-model/config.json").is_file()
    assert losses(rows_of(work)) == before


@pytest.mark.parametrize(
    ("resume", "expected"),
    [
        ("resume=true", "holds no complete checkpoint"),
        ("resume=nowhere/checkpoint-3", "no such checkpoint directory"),
    ],
)
def test_nothing_to_resume_from(cli: Run, resume: str, expected: str) -> None:
    outcome = cli("train", "toy/tiny", *DATA, resume)
    assert outcome.code == 2
    assert expected in outcome.stderr


def test_a_checkpoint_of_another_model_is_refused(cli: Run, work: Path) -> None:
    assert cli("train", "toy/tiny", *DATA).code == 0
    outcome = cli("train", "toy/tiny", *DATA, "model=wide", "resume=auto")
    assert outcome.code == 1
    assert "checkpoint-12" in outcome.stderr and "Traceback" not in outcome.stderr
    assert (work / "runs/toy/final-model/config.json").is_file()  # nothing earlier is lost


def test_everything_missing_is_listed_before_anything_is_built(cli: Run, work: Path) -> None:
    outcome = cli("train", "toy/tiny", *DATA, "init_from=nowhere", "--json")
    assert outcome.code == 1
    assert outcome.last_json["error"]["type"] == "AssetError"
    assert "init_from = nowhere: there is no such file or directory" in outcome.stderr
    assert not (work / "runs").exists()


def test_a_failing_report_does_not_lose_the_model(cli: Run, work: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    def broken(path: Path, report: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("voicehub.cli.end_of_run.write_report", broken)
    outcome = cli("train", "toy/tiny", *DATA, "--json")
    assert outcome.code == 0
    summary = outcome.last_json["summary"]
    assert summary["report"] is None
    assert "No space left" in summary["warnings"][0]
    assert (work / "runs/toy/final-model/config.json").is_file()


@pytest.mark.parametrize("evaluated", ["ema", "both"])
def test_figures_and_paths_say_which_weights_they_are_of(
    cli: Run, work: Path, evaluated: str
) -> None:
    averages = ("training.ema_decay=0.9", f"training.eval_weights={evaluated}")
    often = ("training.eval_strategy=steps", "training.eval_steps=4")
    outcome = cli("train", "toy/tiny", *DATA, *averages, *often)
    assert outcome.code == 0, outcome.stderr
    text = outcome.stdout.split("Done:", 1)[1]
    page = (work / "runs/toy/report.html").read_text()
    kinds = ["averaged"] if evaluated == "ema" else ["raw", "averaged"]
    for kind in ("raw", "averaged"):
        assert (f"eval loss ({kind} weights)" in text) == (kind in kinds)
        assert (f"eval loss ({kind} weights)" in outcome.stdout.split("Done:")[0]) == (
            kind in kinds
        )
        # In a tile and in a chart.
        assert (page.count(f"eval loss ({kind} weights)") >= 2) == (kind in kinds)
    assert "model   runs/toy/final-model (raw weights)" in text
    assert "model   runs/toy/final-model-ema (averaged weights)" in text
    assert "final-model: raw weights, final-model-ema: averaged weights" in page
    chosen = "final-model-ema" if evaluated == "ema" else "final-model"
    assert f"Next: voicehub transcribe FILE --model runs/toy/{chosen}\n" in text
    rows = [row for row in rows_of(work) if any(key.startswith("eval_") for key in row)]
    assert {row["weights"] for row in rows} == ({"ema"} if evaluated == "ema" else {"raw", "ema"})


def test_without_averages_nothing_is_said_of_them(cli: Run, work: Path) -> None:
    outcome = cli("train", "toy/tiny", *DATA)
    assert outcome.code == 0, outcome.stderr
    assert "weights" not in outcome.stdout.split("Done:", 1)[1]
