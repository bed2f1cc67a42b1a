"""The end of a run: averages, prompts, metrics; each may fail and harms nothing before it."""

from __future__ import annotations

import json
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

DATA = ("data.train=train.jsonl",)
PROMPTS = '[{"id": "one/two", "text": "abc", "speaker": "anna"}, "abcdef"]'

_MODEL = """
    def configure_sampling(self, config):
        self.loud = config.data.scale

    def sample(self, prompt, *, seed):
        import numpy as np
        from voicehub.models.results import Synthesis

        if prompt.text == "?":
            raise DataError("no symbol of '?' has a token.")
        time = np.arange(800 * len(prompt.text)) / 8000
        wave = self.loud / 4 * np.sin(time * (1000 + seed % 7))
        bias = self.model.line.bias.item()
        mel = np.full((4, 3), bias) + np.eye(4, 3)
        return Synthesis(prompt.text, wave.astype(np.float32), 8000, mel)

    def _save_family_files"""

_STEPS = """
    from voicehub.adapters.experiment import FinalStep
    from voicehub.models.sampling import make_prompts
    from voicehub.reporting.sample_step import SampleStep

    class Seconds(FinalStep):
        name = "seconds"

        def run(self, context):
            if config.data.scale == 7.0:
                raise RuntimeError("the measure broke")
            return {"seconds": sum(made.made.duration for made in context.samples)}

    prompts = make_prompts(PROMPTS, "the test")
    experiment.final_steps = [SampleStep(prompts, seed=3, config=config), Seconds()]
    experiment.audio_bytes"""


@pytest.fixture
def sounding(site: Path) -> Path:
    """The planted family, with a model that makes prompts and steps at the end."""
    model, experiment = site / "toyfamily/model.py", site / "toyfamily/experiment.py"
    model.write_text(model.read_text().replace("\n    def _save_family_files", _MODEL, 1))
    steps = _STEPS.replace("PROMPTS", PROMPTS)
    experiment.write_text(experiment.read_text().replace("\n    experiment.audio_bytes", steps, 1))
    return experiment


def rows(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_prompts_are_made_and_measured_with_the_weights_that_are_named(
    cli: Any, work: Path, sounding: Path
) -> None:
    options = ("training.posthoc_ema=true", "training.eval_weights=both")
    outcome = cli("train", "toy/tiny", *DATA, *options, "--json")
    assert outcome.code == 0, outcome.stderr
    run, summary = work / "runs/toy", outcome.last_json["summary"]
    for weights in ("raw", "ema"):
        index = json.loads((run / "samples" / weights / "samples.json").read_text())
        assert index["weights"] == weights and index["ema"]["kind"] == "power-function"
        first, second = index["samples"]
        assert (first["id"], first["speaker"], first["audio"]) == ("one/two", "anna", "one_two.wav")
        assert (second["id"], second["text"], second["seconds"]) == ("002", "abcdef", 0.6)
        with wave.open(str(run / "samples" / weights / "one_two.wav")) as file:
            assert file.getnframes() == 2400
    assert summary["metrics"]["eval_seconds"] == pytest.approx(0.9)
    assert summary["metrics"]["eval_ema_seconds"] == pytest.approx(0.9)
    assert summary["metric_weights"]["eval_ema_seconds"] == "ema"
    last = [row for row in rows(run) if "eval_ema_seconds" in row]
    assert [row["weights"] for row in last] == ["ema"]
    page = (run / "report.html").read_text()
    assert "Samples: raw weights" in page
    assert "Samples: averaged weights, relative width 0.05 over 12 updates" in page
    assert "0.00% of the first weights remain" in page
    assert summary["averages"]["updates"] == 12 and summary["failures"] == []


def test_what_fails_is_named_and_loses_nothing(cli: Any, work: Path, sounding: Path) -> None:
    text = sounding.read_text()
    sounding.write_text(text.replace('"abcdef"]', '"?", "abcdef"]'))
    outcome = cli("train", "toy/tiny", *DATA, "data.scale=7.0")
    assert outcome.code == 1
    shown = outcome.stdout
    assert "FAILED: samples failed: DataError: 1 of 3 prompts failed: 002: no symbol" in shown
    assert "FAILED: seconds failed: RuntimeError: the measure broke" in shown
    assert "The weights are safe" in shown
    run = work / "runs/toy"
    assert (run / "final-model/model.safetensors").is_file()
    assert len(list((run / "samples/raw").glob("*.wav"))) == 2
    assert "the measure broke" in (run / "report.html").read_text()


def test_averages_that_cannot_be_written_leave_the_raw_model(
    cli: Any, work: Path, sounding: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from voicehub.trainer.trainer import Trainer

    def broken(self: Trainer) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Trainer, "save_averaged_model", broken)
    outcome = cli("train", "toy/tiny", *DATA, "training.ema_decay=0.9", "--json")
    assert outcome.code == 1
    summary = outcome.last_json["summary"]
    assert "The averaged model failed: OSError" in summary["failures"][0]
    assert summary["averaged_model_directory"] is None
    assert (work / "runs/toy/final-model/model.safetensors").is_file()
    assert (work / "runs/toy/samples/raw/002.wav").is_file()


def test_the_command_samples_by_the_run_and_names_the_weights(
    cli: Any, work: Path, sounding: Path, tmp_path: Path
) -> None:
    often = ("training.posthoc_ema=true", "training.posthoc_ema_snapshot_steps=2")
    assert cli("train", "toy/tiny", *DATA, *often, "data.scale=2.5").code == 0
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"id": "a", "text": "abc", "seed": 5}\n\n{"id": "b", "text": "abcd"}\n')
    run = ("--run", "runs/toy", "--prompts", str(prompts))
    indices = {}
    for name, options in {
        "raw": (),
        "ema": ("--weights", "ema"),
        "wide": ("--sigma-rel", "0.12"),
    }.items():
        out = tmp_path / name
        outcome = cli("sample", *run, "--out", str(out), *options, "--json")
        assert outcome.code == 0, outcome.stderr
        indices[name] = json.loads((out / "samples.json").read_text())
        assert (out / "samples.html").is_file()
    assert [indices[n]["weights"] for n in indices] == ["raw", "ema", "ema"]
    assert indices["ema"]["ema"]["sigma_rel"] == pytest.approx(0.05)
    assert indices["wide"]["ema"]["sigma_rel"] == 0.12
    assert "synthesis" in indices["wide"]["ema"]
    assert "relative width 0.12 over 12" in (tmp_path / "wide/samples.html").read_text()
    assert indices["raw"]["samples"][0]["seed"] == 5
    seeds = [indices[n]["samples"][1]["seed"] for n in indices]
    assert len(set(seeds)) == 1  # of the id and the base alone
    with wave.open(str(tmp_path / "raw/a.wav")) as file:
        heard = np.frombuffer(file.readframes(2400), "<i2")
    # As loud as the run's own data.scale says.
    assert abs(heard).max() == pytest.approx(2.5 / 4 * 32767, rel=0.02)
    prompts.write_text('{"id": "b", "text": "abcd"}\n')
    again = tmp_path / "again"
    assert cli("sample", *run, "--out", str(again)).code == 0
    assert (again / "b.wav").read_bytes() == (tmp_path / "raw/b.wav").read_bytes()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"txt": "a"}', r"line|prompt 1: unknown key 'txt'. Did you mean 'text'"),
        ('{"id": "a"}', "give text, features or both"),
        ('{"text": "a", "seed": -1}', "seed must be a number of at least 0"),
        ("not json", "line 1: no JSON"),
        ("", "there is no prompt"),
        ('{"id": "a", "text": "b"}\n{"id": "a", "text": "c"}', "two prompts have the id 'a'"),
    ],
)
def test_prompts_that_are_wrong_are_named(tmp_path: Path, line: str, message: str) -> None:
    from voicehub.errors import DataError
    from voicehub.models.sampling import read_prompts

    path = tmp_path / "prompts.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(DataError, match=message):
        read_prompts(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "Name a run"),
        (("--run", "nowhere"), "--run nowhere is no directory"),
        (("--run", ".", "--weights", "best"), "raw or ema"),
        (("--run", ".", "--step", "3"), "--step belongs to --sigma-rel"),
        (("--run", "."), "does not exist: the run has not ended"),
        (("--run", ".", "--out", "train.jsonl"), "--out train.jsonl cannot be written"),
        (("--model", ".", "--weights", "ema"), "a model as it is"),
    ],
)
def test_options_that_make_no_sense(
    cli: Any, work: Path, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("one\n")
    outcome = cli("sample", "--prompts", str(prompts), "--out", str(tmp_path / "o"), *options)
    assert outcome.code == 2
    assert message in outcome.stderr


def test_a_smoke_run_goes_through_averages_prompts_and_metrics(cli: Any, sounding: Path) -> None:
    outcome = cli("train", "toy/tiny", *DATA, "--smoke", "training.posthoc_ema=true")
    assert outcome.code == 0, outcome.stderr
    assert "width 0.075 from 2 snapshots" in outcome.stdout
    assert "2 prompts made, report written" in outcome.stdout
    assert "weight files bit-equal" in outcome.stdout
