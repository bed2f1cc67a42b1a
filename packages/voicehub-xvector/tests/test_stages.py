"""A chain of stages through the command line: classes, killed in the middle, changed afterwards."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
import yaml
from safetensors.torch import load_file

from voicehub.cli.app import run
from voicehub_xvector.class_map import load_classes
from voicehub_xvector.embedder import XVectorModel

FINAL = ("final-model/model.safetensors", "final-model-ema/model.safetensors")


@pytest.fixture
def chain(tmp_path, monkeypatch, voice_corpus, run_values):
    """Write two stages as a preset: other classes, sampler, margin; weights are averaged."""
    monkeypatch.chdir(tmp_path)
    # Tested elsewhere, and most of the time of so short a run.
    monkeypatch.setattr(XVectorModel, "export_native", lambda self, directory: False)
    values = run_values(
        voice_corpus(24), None, tmp_path, max_steps=3, save_strategy="steps", save_steps=1,
        ema_decay=0.9,
    )  # fmt: skip
    values["training"]["output_dir"] = "chain"
    values["model"]["loss"].update(margin_warmup=6, margin_warmup_unit="step")
    values["model"]["head"]["dropout"] = 0.2
    values["data"]["augment"] = {"gain": {"decibels": [-3, 3]}, "spec_augment": {}}
    pieces = {"chunk_seconds": [0.2, 0.3], "max_padded_seconds": 3}
    stages = {
        "head": {
            "data": {"speed_speakers": [0.9], "sampler": {"kind": "random-chunk", **pieces}},
        },
        "long": {
            "model": {"loss": {"margin": 0.3}},
            "data": {"sampler": {"kind": "hard-prototypes", "neighbours": 2, **pieces}},
            "training": {"learning_rate": 1e-3},
        },
    }  # fmt: skip

    def write(**changes):
        text = yaml.safe_dump({**values, "stages": {**stages, **changes}}, sort_keys=False)
        (tmp_path / "chain.yaml").write_text(text)
        return tmp_path / "chain"

    return write


def finals(directory):
    return {name: load_file(directory / name) for name in FINAL}


def undo(directory, stage, step):
    """Leave what a run that was killed after a step of a stage leaves."""
    folders = sorted(path for path in directory.iterdir() if path.is_dir())
    for folder in folders:
        number = folder.name.partition("-")[0]
        if folder.name.startswith("final-model") or (number.isdigit() and int(number) > stage):
            shutil.rmtree(folder)
        elif number == str(stage):
            later = [f for f in folder.glob("checkpoint-*") if int(f.name.split("-")[1]) > step]
            for path in [*later, *folder.glob("final-model*")]:
                shutil.rmtree(path)
    record = json.loads((directory / "stages.json").read_text())
    record["finished"] = record["finished"][: stage - 1]
    (directory / "stages.json").write_text(json.dumps(record))


def test_a_chain_killed_inside_any_stage_ends_with_the_same_bits(chain, caplog):
    directory = chain()
    assert run(["train", "chain.yaml"]) == 0
    assert "4 speakers keep their prototypes; 4 are left out (ann@0.9" in caplog.text
    assert len(load_classes(directory / "1-head/final-model")) == 8
    assert load_classes(directory / "final-model") == ["ann", "bob", "cat", "dan"]
    record = json.loads((directory / "2-long/run.json").read_text())["init_from"]
    assert record["path"] == "chain/1-head/final-model" and len(record["sha256"]) == 64
    whole = finals(directory / "2-long")
    for stage, step in ((2, 2), (1, 1)):
        undo(directory, stage, step)
        assert run(["train", "chain.yaml", "resume=auto"]) == 0
        for name, tensors in finals(directory / "2-long").items():
            assert all(torch.equal(tensors[key], value) for key, value in whole[name].items())


def test_an_earlier_stage_that_changed_is_told(chain, capsys):
    directory = chain()
    assert run(["train", "chain.yaml", "training.max_steps=1"]) == 0
    undo(directory, 2, 0)
    capsys.readouterr()
    chain(head={"training": {"learning_rate": 3e-4}})
    assert run(["train", "chain.yaml", "training.max_steps=1", "resume=auto"]) != 0
    said = capsys.readouterr()
    assert "head" in said.out + said.err and "changed" in said.out + said.err
