"""Presets: the command that launches each is the same configuration, and tiny runs of each work."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from voicehub.cli.app import run
from voicehub.cli.compose import compose_preset
from voicehub.cli.launch_plan import parse_torchrun
from voicehub.cli.validate import validate_run

TTS = ("flow/tiny-tts", "flow/f5-finetune")
STORES = (
    "flow/tiny-store",
    "flow/v2a-small-16k",
    "flow/v2a-small-44k",
    "flow/v2a-medium-44k",
    "flow/v2a-large-44k",
)


def configuration(words: tuple[str, ...]) -> dict[str, Any]:
    _, config = validate_run(compose_preset(words[1], words[2:]))
    return config.model_dump(mode="json")


@pytest.fixture
def given(tmp_path: Path) -> dict[str, list[str]]:
    """What presets leave open, by preset."""
    manifest, place = tmp_path / "it's a manifest.jsonl", tmp_path / "store"
    manifest.write_text("")
    place.mkdir()
    options = {name: [f"data.train='{manifest}'".replace("it's", r"it\'s")] for name in TTS}
    options["flow/f5-finetune"].append(f"model.path={place}")
    options |= {name: [f"data.train=[{{path: {place},rate: 5}}]"] for name in STORES}
    return options


@pytest.mark.parametrize("preset", [*TTS, *STORES])
def test_the_rendered_command_is_the_same_configuration(
    preset: str, given: dict[str, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = 'after_training.prompts=["one, two","{three}"]'
    typed = ("train", preset, *given[preset], prompts, "training.max_steps=7")
    assert run([*typed, "--print-launch", "--nproc", "4"]) == 0
    plan = parse_torchrun(shlex.split(capsys.readouterr().out))
    assert (plan.processes, plan.nodes) == (4, 1)
    wanted = configuration((*typed, "training.strategy=ddp"))
    assert configuration(plan.words) == wanted
    assert wanted["after_training"]["prompts"] == ["one, two", "{three}"]
    assert run([*typed, "--smoke", "--print-launch"]) == 0
    smoke = parse_torchrun(shlex.split(capsys.readouterr().out))
    assert smoke.words == (*typed, "--smoke")


def test_a_missing_asset_is_named_before_a_launch(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["model.vocoder.name=vocos", "model.vocoder.path=/nowhere/vocos"]
    options += ["after_training.prompts=/nowhere/prompts.txt", "data.train=/nowhere/train.jsonl"]
    assert run(["train", "flow/tiny-tts", *options, "--print-launch"]) == 1
    shown = capsys.readouterr()
    assert "model.vocoder.path = /nowhere/vocos" in shown.err
    assert "after_training.prompts = /nowhere/prompts.txt" in shown.err
    assert "torchrun" not in shown.out


@pytest.mark.parametrize("preset", ["flow/f5-finetune", "flow/v2a-large-44k"])
def test_a_smoke_run_goes_all_the_way(preset: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", preset, "--smoke"]) == 0
    shown = capsys.readouterr().out
    steps = [line.split()[0] for line in shown.split("what it showed")[1].splitlines() if line]
    assert steps[:8] == ["train", "save", "resume", "eval", "ema", "sample", "export", "load"]
    assert "prompts made, report written" in shown
    assert "sample_frechet_distance_log_mel" in shown
