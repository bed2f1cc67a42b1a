"""Smoke runs of the presets from random weights and from a checkpoint; `nox -s bars` runs all."""

from __future__ import annotations

import json

import pytest

from voicehub.cli.app import run


@pytest.mark.parametrize("preset", ["asr-ctc/tiny", "asr-ctc/hubert-finetune"])
def test_the_preset_works_from_training_to_loading(preset, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    code = run(["train", preset, "--smoke", "--json"])
    captured = capfd.readouterr()
    assert code == 0, captured.err
    steps = json.loads(captured.out.splitlines()[-1])["smoke"]["steps"]
    names = [step["name"] for step in steps]
    assert names == ["train", "save", "resume", "eval", "sample", "export", "load"]
    assert "eval_wer" in steps[3]["detail"]
