"""``voicehub plan``: against torch's own record, and against a hub whose requests are counted."""

from __future__ import annotations

import json
from pathlib import Path

import huggingface_hub.constants
import pytest
import torch
from planned_memory import measured, planned, tiny_composition, trainers

from voicehub.cli.app import run
from voicehub_data.synthetic.tones import write_tone_corpus
from voicehub_hf.hub.loopback import serve_hub
from voicehub_hf.testing import make_tiny_ctc_checkpoint


@pytest.mark.parametrize("preset", ["asr-ctc/tiny", "xvector/tiny", "asr-ctc/wav2vec2-finetune"])
def test_the_peak_is_that_of_a_real_step(preset: str, tmp_path: Path) -> None:
    make = trainers(tiny_composition(preset, tmp_path))
    torch.manual_seed(0)
    found = planned(make)
    assert found.peak == pytest.approx(measured(make), rel=0.1)
    module = make(_single).graph.adapter.module
    assert found.parameters.total == sum(p.numel() for p in module.parameters())
    assert found.parameters.trainable == sum(
        p.numel() for p in module.parameters() if p.requires_grad
    )


def _single(args: object) -> object:
    from voicehub.strategies.single import SingleProcessStrategy

    return SingleProcessStrategy(args)  # type: ignore[arg-type]


def test_no_weights_are_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sizes come from the hub's list of files, shapes from config.json."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    letters = ["<pad>", "<unk>", "|", *"abcdefghijklmnopqrstuvwxyz"]
    checkpoint = make_tiny_ctc_checkpoint(tmp_path / "tiny", "wav2vec2", letters)
    data = f"data.train={write_tone_corpus(tmp_path / 'train')}"
    words = ["plan", "asr-ctc/wav2vec2-finetune", data]
    with serve_hub() as hub:
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", hub.url)
        template = f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        hub.offered["tester/wav2vec2"] = {p.name: p.read_bytes() for p in checkpoint.iterdir()}
        code = run([*words, "model.path=tester/wav2vec2", "--json"])
        answer = json.loads(capsys.readouterr().out.splitlines()[-1])
        sent = dict(hub.downloads)
    assert code == 0, answer
    weights = (checkpoint / "model.safetensors").stat().st_size
    (plan,) = answer["plan"]
    assert plan["disk"]["downloads"] >= weights and plan["memory"]["weights"] > 0
    assert sent and not any(name.endswith(".safetensors") for name in sent)


def test_a_hub_that_is_away_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    data = f"data.train={write_tone_corpus(tmp_path / 'train')}"
    with serve_hub() as hub:
        hub.unavailable = True
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        code = run(["plan", "asr-ctc/wav2vec2-finetune", "model.path=tester/away", data])
    assert code == 1
    assert "model.path = tester/away: the hub does not tell" in capsys.readouterr().err


def test_a_run_that_does_not_fit_ends_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("voicehub.planning.cards.CONTEXT_BYTES", 16 * 2**30 - 500_000)
    data = f"data.train={write_tone_corpus(tmp_path / 'train')}"
    assert run(["plan", "asr-ctc/tiny", data, "--card", "T4"]) == 1
    text = capsys.readouterr().out
    assert "T4 (16 GiB) does not hold it" in text and "To make it fit" in text
    assert not (tmp_path / "runs").exists()
