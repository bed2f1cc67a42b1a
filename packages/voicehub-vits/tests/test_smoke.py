"""A smoke run of the preset that starts from a checkpoint; ``nox -s bars`` runs all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from voicehub.cli.app import run


def test_the_preset_works_from_training_to_loading(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    code = run(["train", "vits/mms-finetune", "--smoke", "--json"])
    captured = capfd.readouterr()
    assert code == 0, captured.err
    steps = json.loads(captured.out.splitlines()[-1])["smoke"]["steps"]
    names = [step["name"] for step in steps]
    assert names == ["train", "save", "resume", "eval", "sample", "export", "load"]
    assert "native_export" in steps[5]["detail"]
