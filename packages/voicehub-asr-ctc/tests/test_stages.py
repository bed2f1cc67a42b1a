"""Chains of stages over both kinds of models, through the command line."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
import yaml
from safetensors.torch import load_file

from voicehub.cli.app import run
from voicehub.models.auto import AutoModelForSpeechRecognition


@pytest.fixture
def chain(tmp_path, monkeypatch):
    """Write the values of a run, with stages, as a preset, and return its chain's directory."""
    monkeypatch.chdir(tmp_path)

    def write(values, stages):
        values["training"]["output_dir"] = "chain"
        (tmp_path / "chain.yaml").write_text(
            yaml.safe_dump({**values, "stages": stages}, sort_keys=False)
        )
        return tmp_path / "chain"

    return write


def start_of(folder):
    return json.loads((folder / "run.json").read_text())["init_from"]


def test_a_log_mel_model_in_two_stages_keeps_its_tokenizer(chain, log_mel_run, tone_corpus):
    values = log_mel_run(tone_corpus(16), max_steps=2, save_strategy="steps", save_steps=1)
    stages = {
        "clean": {},
        "other": {
            "model": {"dropout": 0.1},
            "data": {"train": str(tone_corpus(8, seed=3, name="more"))},
            "training": {"learning_rate": 1e-3},
        },
    }
    directory = chain(values, stages)
    assert run(["train", "chain.yaml"]) == 0
    assert start_of(directory / "1-clean") is None
    assert start_of(directory / "2-other")["path"] == "chain/1-clean/final-model"
    first, second = (directory / f"{folder}/final-model" for folder in ("1-clean", "2-other"))
    models = [AutoModelForSpeechRecognition.from_pretrained(path) for path in (first, second)]
    assert models[0].tokenizer.fingerprint() == models[1].tokenizer.fingerprint()
    whole = load_file(second / "model.safetensors")
    # Killed after the first update of the second stage.
    shutil.rmtree(directory / "2-other/checkpoint-2")
    shutil.rmtree(second)
    record = json.loads((directory / "stages.json").read_text())
    record["finished"].pop()
    (directory / "stages.json").write_text(json.dumps(record))
    assert run(["train", "chain.yaml", "resume=auto"]) == 0
    again = load_file(second / "model.safetensors")
    assert all(torch.equal(tensor, again[name]) for name, tensor in whole.items())


def test_an_encoder_is_unfrozen_by_and_by(chain, pretrained_run, tone_corpus, checkpoint_of):
    checkpoint = checkpoint_of("wav2vec2")
    values = pretrained_run(checkpoint, tone_corpus(8), "wav2vec2", max_steps=1, learning_rate=0.1)
    stages = {
        "head": {"model": {"freeze": "encoder"}},
        "adapters": {"model": {"lora": {"rank": 2}}},
        "whole": {"model": {"freeze": "none"}, "training": {"learning_rate": 0}},
    }
    directory = chain(values, stages)
    assert run(["train", "chain.yaml"]) == 0
    files = ["1-head", "2-adapters", "3-whole"]
    paths = [directory / name / "final-model/transformers/model.safetensors" for name in files]
    head, adapters, whole = map(load_file, paths)
    base = load_file(checkpoint / "model.safetensors")
    layer = "wav2vec2.encoder.layers.0.attention.q_proj.weight"
    assert torch.equal(head[layer], base[layer])
    assert not torch.equal(adapters[layer], base[layer])  # merged into the model that goes on
    assert [name for name, tensor in adapters.items() if not torch.equal(tensor, whole[name])] == []
    assert torch.equal(adapters["lm_head.bias"], whole["lm_head.bias"])
    assert not torch.equal(adapters["lm_head.bias"], head["lm_head.bias"])
