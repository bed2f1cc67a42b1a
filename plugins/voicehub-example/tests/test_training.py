"""A short run on the command line, and the model that it leaves."""

import json
from pathlib import Path

import pytest
import torch
from voicehub.cli.app import run

from voicehub_example.data import synthetic_clip
from voicehub_example.features import log_mel
from voicehub_example.model import DenoiserModel


def test_the_preset_trains_and_its_model_takes_noise_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "run"
    assert run(["train", "example/tiny", f"training.output_dir={directory}", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])["summary"]
    assert summary["metrics"]["eval_noise_left"] < 0.7
    model = DenoiserModel.from_pretrained(directory / "final-model", lazy_load=False).model.eval()
    clip = synthetic_clip(8_000, seed=99)
    noise = 0.1 * torch.randn(len(clip), generator=torch.Generator().manual_seed(1))
    clean, noisy = log_mel(clip, 20), log_mel(clip + noise, 20)
    cleaned = model(noisy[None], torch.ones(1, len(noisy), dtype=torch.bool))["predictions"][0]
    assert (cleaned - clean).square().mean() < 0.7 * (noisy - clean).square().mean()


def test_a_misspelt_setting_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "example/tiny", "model.chanels=3", "--dry-run"]) == 2
    assert "model.channels" in capsys.readouterr().err
