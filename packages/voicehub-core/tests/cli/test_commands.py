"""The smaller commands: presets, plugins, eval, transcribe, doctor."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from voicehub.cli import health_checks, installed
from voicehub.cli.output import say, survive_encodings
from voicehub.cli.preset_files import Preset

Run = Callable[..., Any]


@pytest.fixture
def model(cli: Run, work: Path) -> Path:
    assert cli("train", "toy/tiny", "data.train=train.jsonl").code == 0
    return work / "runs/toy/final-model"


# -- presets and plugins ------------------------------------------------------------------


def test_presets_of_packages_and_of_the_user(cli: Run, work: Path) -> None:
    (work / "configs/my").mkdir(parents=True)
    (work / "configs/my/own.yaml").write_text("# @package _global_\n# Mine alone.\nname: x\n")
    (work / "configs/data").mkdir()
    (work / "configs/data/corpus.yaml").write_text("train: x\n")
    listed = cli("presets", "--json").last_json["presets"]
    found = {item["name"]: item["summary"] for item in listed}
    assert found["toy/tiny"] == "A line of four numbers, trained in a second."
    assert found["my/own"] == "Mine alone."
    assert not any(name.startswith(("data/", "toy/_")) for name in found)
    assert "toy/tiny" in cli("presets").stdout
    told = cli("presets", "toy").stdout.splitlines()[-2:]
    assert told[0] == "Train one: voicehub train toy/tiny KEY=VALUE ..."
    assert "named by --dry-run" in told[1]
    assert "'data.train' is required" in cli("train", "toy/tiny", "--dry-run").stderr


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        ("# One. Two.\nname: x\n", "One."),
        ("# A 0.8B model, of which\n# more later. Never.\n", "A 0.8B model, of which more later."),
        ("\n# @package _global_\n#\n# No end\n\n# Apart.\n", "No end"),
        ("name: x\n# Too late.\n", ""),
        ("", ""),
    ],
)
def test_a_summary_is_a_whole_sentence(tmp_path: Path, text: str, summary: str) -> None:
    (tmp_path / "p.yaml").write_text(text)
    assert Preset("f/p", tmp_path, "p", "f").summary() == summary


def test_letters_that_a_terminal_cannot_show_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", narrow)
    survive_encodings()
    say("\u00fcber")
    assert narrow.buffer.getvalue().split() == [b"\\xfcber"]


def test_a_broken_family_hides_no_other(cli: Run, site: Path, planted: Any) -> None:
    (site / "explosive").mkdir()
    (site / "explosive/__init__.py").write_text("raise RuntimeError('imported')\n")
    planted(
        "voicehub-explosive",
        {
            "voicehub.plugin_api": {"v1": "explosive"},
            "voicehub.presets": {"explosive": "explosive.presets"},
        },
    )
    outcome = cli("presets", "--json")
    assert outcome.code == 0
    assert "toy/tiny" in {item["name"] for item in outcome.last_json["presets"]}
    assert "voicehub-explosive" in outcome.last_json["broken"]["explosive"]


def test_plugins_shows_broken_conflicting_and_unsupported_ones(cli: Run, planted: Any) -> None:
    api = {"v1": "x"}
    planted(
        "voicehub-rotten",
        {"voicehub.plugin_api": api, "voicehub.models": {"rotten": "rotten.model:M"}},
    )
    planted(
        "voicehub-twin",
        {"voicehub.plugin_api": api, "voicehub.presets": {"toy": "twin.presets"}},
    )
    planted(
        "voicehub-future",
        {"voicehub.plugin_api": {"v99": "f"}, "voicehub.losses": {"f.l": "f:l"}},
    )
    outcome = cli("plugins", "--inspect", "--json")
    assert outcome.code == 0
    states = {(item["distribution"], item["group"]): item for item in outcome.last_json["plugins"]}
    rotten = states["voicehub-rotten", "voicehub.models"]
    assert rotten["state"] == "broken" and "No module named 'rotten'" in rotten["reason"]
    assert states["voicehub-twin", "voicehub.presets"]["state"] == "conflict"
    assert "v99" in states["voicehub-future", "voicehub.losses"]["reason"]
    assert states["voicehub-toy", "voicehub.models"]["state"] == "loaded"
    text = cli("plugins").stdout
    assert "voicehub-twin" in text and "VOICEHUB_DISABLE_PLUGINS" in text


def test_plugins_tells_which_kernel_of_a_loss_is_live_and_why(
    cli: Run, planted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VOICEHUB_KERNELS", raising=False)
    losses = {
        "toy.foreign": "toyfamily.losses:Foreign",
        "toy.rotten": "toyfamily.losses:Rotten",
        "toy.square": "toyfamily.losses:SQUARE",
    }
    planted("toy-losses", {"voicehub.plugin_api": {"v1": "x"}, "voicehub.losses": losses})
    rows = {line.split()[0]: line for line in cli("plugins", "--losses").stdout.splitlines()}
    assert rows["toy.square"].split()[1:5] == ["toy-losses", "1.2", "cpu", "torch"]
    assert rows["toy.square"].endswith("c cannot be used: no compiler in this toy")
    assert "assembly" in rows["toy.foreign"]
    assert "broken" in rows["toy.rotten"] and "no attribute 'Rotten'" in rows["toy.rotten"]
    monkeypatch.setenv("VOICEHUB_KERNELS", "toy.squre=torch")
    outcome = cli("plugins", "--losses", "--json")
    found = {item["name"]: item for item in outcome.last_json["losses"]}
    assert "Did you mean 'toy.square'" in found["toy.square"]["details"]["kernel"]


def test_a_disabled_command_is_not_offered(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICEHUB_DISABLE_PLUGINS", "voicehub-toy")
    outcome = cli("toy", "count", "1")
    assert outcome.code == 2
    assert "toy" not in cli("--help").stdout.lower().replace("history", "")


def test_a_command_that_finds_trouble_fails_with_its_result(cli: Run) -> None:
    outcome = cli("toy", "count", "13", "--json")
    assert outcome.code == 1
    assert outcome.last_json == {"ok": False, "count": 13}
    assert cli("toy", "count", "3").stdout == "counted to 3\n"


# -- eval and transcribe ------------------------------------------------------------------


def test_eval_prints_metrics_dropped_rows_and_the_worst(cli: Run, model: Path, work: Path) -> None:
    outcome = cli("eval", "runs/toy/final-model", "--data", "test.jsonl")
    assert outcome.code == 0
    assert "50.0 %" in outcome.stdout and "1 empty text\n  left out: r9\n" in outcome.stdout
    assert "0 too" in outcome.stdout
    outcome = cli(
        "eval", "runs/toy", "--data", "test.jsonl", "--max-samples", "3", "--json",
        "--predictions", "out/rows.jsonl",
    )  # fmt: skip
    assert outcome.last_json["metrics"] == {"wer": 0.5}
    assert outcome.last_json["samples"] == 3
    assert outcome.last_json["dropped"] == {"empty text": 1}
    assert outcome.last_json["notes"] == ["left out: r9"]
    rows = [json.loads(line) for line in (work / "out/rows.jsonl").read_text().splitlines()]
    assert [row["hypothesis"] for row in rows] == ["0 too", "1 too", "2 too"]


def test_a_model_or_an_option_of_another_task_is_told_what_it_is_for(cli: Run, model: Path) -> None:
    spoken = cli("synthesize", "--text", "hi", "--out", "x.wav", "--model", "runs/toy")
    assert spoken.code == 2
    assert "voicehub transcribe FILE --model runs/toy" in spoken.stderr
    assert "AutoModel" not in spoken.stderr
    trials = cli("eval", "runs/toy", "--data", "test.jsonl", "--trials", "test.jsonl")
    assert trials.code == 2 and "--trials is for speaker embedders" in trials.stderr
    for command in (("transcribe", "test.jsonl", "--model"), ("eval", "--data", "test.jsonl")):
        unknown = cli(*command, "nope")
        assert unknown.code == 2 and "give --model-type, one of" in unknown.stderr


def test_eval_prints_tables_and_passes_on_that_seen_rows_are_wanted(
    cli: Run, model: Path, work: Path
) -> None:
    assert "by source" not in cli("eval", "runs/toy", "--data", "test.jsonl").stdout
    outcome = cli("eval", "runs/toy", "--data", "test.jsonl", "--allow-seen")
    lines = outcome.stdout.splitlines()
    shown = [line.split() for line in lines[lines.index("by source:") + 1 :][:3]]
    assert shown == [["source", "wer", "rows"], ["seen", "25.0", "%", "3"], ["new"]]
    outcome = cli("eval", "runs/toy", "--data", "test.jsonl", "--allow-seen", "--json")
    assert outcome.last_json["tables"]["by source"][0]["wer"] == 0.25


def test_transcribe_prints_the_text_alone_for_one_file(cli: Run, model: Path, work: Path) -> None:
    (work / "a.wav").write_text("one two")
    assert cli("transcribe", "a.wav", "--model", "runs/toy").stdout == "one two\n"
    lines = cli("transcribe", "a.wav", "--model", str(model), "--timestamps").stdout.splitlines()
    assert lines[1].split() == ["0.00", "0.40", "one"]
    assert lines[2].split() == ["0.50", "0.90", "two"]


def test_a_bad_file_is_named_and_the_others_are_done(cli: Run, model: Path, work: Path) -> None:
    for name, text in (("a", "one"), ("b", ""), ("c", "three")):
        (work / f"{name}.wav").write_text(text)
    outcome = cli("transcribe", "a.wav", "b.wav", "c.wav", "--model", "runs/toy", "--json")
    assert outcome.code == 1
    assert [item["text"] for item in outcome.last_json["transcriptions"]] == ["one", "three"]
    (failed,) = outcome.last_json["failed"]
    assert failed["file"] == "b.wav" and "0 bytes" in failed["message"]
    assert outcome.stderr.count("b.wav") == 1
    plain = cli("transcribe", "a.wav", "b.wav", "c.wav", "--model", "runs/toy")
    assert plain.stdout.splitlines() == ["a.wav: one", "c.wav: three"]


def test_a_model_of_an_unknown_type(cli: Run, model: Path, work: Path) -> None:
    config = model / "config.json"
    config.write_text(config.read_text().replace("toy-line", "toy-curve"))
    outcome = cli("eval", "runs/toy", "--data", "test.jsonl")
    assert outcome.code == 2
    assert "toy-curve" in outcome.stderr and "toy-line" in outcome.stderr


# -- doctor -------------------------------------------------------------------------------


def test_doctor_looks_at_everything(cli: Run) -> None:
    outcome = cli("doctor", "--json")
    checks = {check["name"]: check for check in outcome.last_json["checks"]}
    assert outcome.code == 0, outcome.stdout
    assert checks["python"]["state"] == "ok"
    assert checks["import name 'voicehub'"]["state"] == "ok"
    assert checks["voicehub-core"]["state"] == "ok"
    assert checks["voicehub-toy"]["detail"] == "1.2"
    assert "torch" in checks and "device cpu" in checks and "disk space" in checks
    assert "libsndfile" in checks and "espeak-ng" in checks


def test_doctor_finds_the_single_package_of_the_same_import_name(
    cli: Run, site: Path, planted: Any
) -> None:
    planted("voicehub", {}, version="0.9")
    (site / "voicehub-0.9.dist-info/RECORD").write_text("voicehub/__init__.py,,\nother.py,,\n")
    outcome = cli("doctor", "--json")
    assert outcome.code == 1
    (check,) = (c for c in outcome.last_json["checks"] if c["name"] == "import name 'voicehub'")
    assert check["state"] == "failed"
    assert "'voicehub' 0.9" in check["detail"] and "pip uninstall voicehub" in check["detail"]


def test_a_distribution_called_voicehub_without_that_import_name_is_no_trouble(
    site: Path, planted: Any
) -> None:
    planted("voicehub", {}, version="0.9")
    (site / "voicehub-0.9.dist-info/RECORD").write_text("somethingelse/__init__.py,,\n")
    assert installed.foreign_voicehub() == ""


def test_an_import_that_is_not_the_cores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import voicehub

    monkeypatch.setattr(voicehub, "__file__", str(tmp_path / "voicehub/__init__.py"))
    assert "does not belong to the installed voicehub-core" in installed.foreign_voicehub()


def test_doctor_reports_a_core_that_a_package_does_not_accept(site: Path, planted: Any) -> None:
    planted("voicehub-old", {}, version="0.0.1")
    with (site / "voicehub_old-0.0.1.dist-info/METADATA").open("a") as file:
        file.write("Requires-Dist: voicehub-core<0.0.1\n")
    assert installed.core_mismatches()["voicehub-old"].startswith("needs voicehub-core<0.0.1")


def test_a_check_that_breaks_takes_no_other_down(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: object) -> None:
        raise PermissionError("no access")

    monkeypatch.setattr("shutil.disk_usage", full)
    checks = {check.name: check for check in health_checks.run_checks()}
    assert checks["disk"].state == "failed" and "no access" in checks["disk"].detail
    assert checks["python"].state == "ok"


def test_broken_plugins_are_a_warning_naming_the_distribution(planted: Any) -> None:
    planted(
        "voicehub-rotten",
        {"voicehub.plugin_api": {"v1": "x"}, "voicehub.models": {"rotten": "rotten.model:M"}},
    )
    checks = {check.name: check for check in health_checks.run_checks()}
    assert checks["plugins of voicehub-rotten"].state == "warning"
    assert "No module named 'rotten'" in checks["plugins of voicehub-rotten"].detail


def test_checks_of_plugins_are_run(site: Path) -> None:
    from voicehub.plugins import hooks

    class Plugin:
        @hooks.hookimpl
        def voicehub_checks(self) -> list[Any]:
            def licence_server() -> str:
                return "reachable"

            def tape_drive() -> str:
                raise OSError("no tape inserted")

            return [licence_server, tape_drive]

    plugin = Plugin()
    hooks.register(plugin)
    try:
        checks = {check.name: check for check in health_checks.run_checks()}
    finally:
        hooks.unregister(plugin)
    assert (checks["licence server"].state, checks["licence server"].detail) == ("ok", "reachable")
    assert (checks["tape drive"].state, checks["tape drive"].detail) == (
        "warning",
        "no tape inserted",
    )
