"""Exports load in plain transformers, in a process without VoiceHub, and give the same text."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch

from voicehub.errors import CheckpointError, ConfigurationError
from voicehub_hf.encoders import CTC_ENCODERS, ctc_encoder
from voicehub_hf.export import export_ctc
from voicehub_hf.features import minimum_samples, prepare_features
from voicehub_hf.loading import load_checkpoint, load_ctc
from voicehub_hf.lora import add_lora
from voicehub_hf.spec_augment import (
    HiddenStateMasking,
    disable_layer_drop,
    disable_native_spec_augment,
)
from voicehub_hf.tokenization import ctc_tokenizer

#: Whole windows of every processor: no masked row at the end, which plain transformers decodes.
SAMPLES = (400 + 79 * 160, 400 + 39 * 160)

#: Runs where neither VoiceHub nor the network can be reached.
FRESH_PROCESS = textwrap.dedent(
    """
    import json, os, sys
    os.environ["HF_HUB_OFFLINE"] = "1"

    class Blocked:
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0].startswith("voicehub"):
                raise ImportError(f"{name} is blocked")

    sys.meta_path.insert(0, Blocked())
    import numpy as np, torch, transformers
    from transformers import AutoModelForCTC, AutoProcessor, pipeline

    found = {}
    for job in json.loads(sys.argv[1]):
        waves = np.load(job["waves"])
        model = AutoModelForCTC.from_pretrained(job["folder"]).eval()
        processor = AutoProcessor.from_pretrained(job["folder"])
        recognise = pipeline("automatic-speech-recognition", model=job["folder"])
        sums = []
        for name in waves.files:
            inputs = processor(waves[name], sampling_rate=16000, return_tensors="pt")
            with torch.no_grad():
                sums.append(model(**inputs).logits.double().abs().sum().item())
        found[job["name"]] = {
            "model": type(model).__name__,
            "processor": type(processor).__name__,
            "texts": [recognise(waves[name].copy())["text"] for name in waves.files],
            "sums": sums,
        }
    assert not [name for name in sys.modules if name.startswith("voicehub")]
    print(json.dumps(found))
    """
)


@pytest.fixture(scope="module")
def exports(checkpoint_of, draw_waveforms, tmp_path_factory):
    """Exports of all types, plain and trained with adapters, and what a fresh process reads.

    By (type, kind): (results before the export, directory, the process's findings).
    """
    folder = tmp_path_factory.mktemp("exports")
    waves = draw_waveforms(*SAMPLES)
    expected, jobs = {}, []
    for model_type in CTC_ENCODERS:
        for kind, change in (("plain", lambda model: model), ("trained", train_adapters)):
            model, processor = load_ctc(checkpoint_of(model_type))
            shortest = draw_waveforms(minimum_samples(model.config, processor), seed=1)
            model = change(model).eval()
            name = f"{model_type} {kind}"
            expected[name] = read(model, processor, [*waves, *shortest])
            model.train()
            export_ctc(model, processor, folder / name)
            assert model.training
            np.savez(folder / f"{name}.npz", *waves, *shortest)
            file = str(folder / f"{name}.npz")
            jobs.append({"name": name, "folder": str(folder / name), "waves": file})
    done = subprocess.run(
        [sys.executable, "-c", FRESH_PROCESS, json.dumps(jobs)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    return {tuple(name.split()): (expected[name], folder / name, found[name]) for name in expected}


def train_adapters(model):
    """Leave on a model all that a training run with adapters does."""
    disable_native_spec_augment(model)
    disable_layer_drop(model)
    adapted = add_lora(model, rank=2, alpha=2)
    HiddenStateMasking(adapted)
    generator = torch.Generator().manual_seed(1)
    for name, parameter in adapted.named_parameters():
        if parameter.requires_grad and "mask" not in name:
            scale = 0.05 if ".lora_" in name else 0.001
            parameter.data.add_(torch.randn(parameter.shape, generator=generator) * scale)
    return adapted


def read(model, processor, waves):
    """Greedy texts, and the sum of absolute logits, of each waveform."""
    texts, sums = [], []
    for wave in waves:
        prepared = prepare_features(processor, [wave], 16000)
        with torch.no_grad():
            logits = model(**prepared.inputs).logits
        texts.append(processor.tokenizer.decode(logits[0].argmax(-1)))
        sums.append(logits.double().abs().sum().item())
    return {"texts": texts, "sums": sums}


@pytest.mark.parametrize("kind", ["plain", "trained"])
def test_a_fresh_process_without_voicehub_gives_the_same_text(exports, model_type, kind):
    expected, _, found = exports[model_type, kind]
    # More than a constant, or equality would say little.
    assert len(set("".join(expected["texts"]))) > 3
    assert found["texts"] == expected["texts"]
    assert found["sums"] == pytest.approx(expected["sums"], rel=1e-4)
    assert found["model"] == ctc_encoder(model_type).architecture
    assert found["processor"] == ctc_encoder(model_type).processor_class


def test_adapters_are_in_the_exported_weights(exports, model_type):
    trained, plain = (exports[model_type, kind][2] for kind in ("trained", "plain"))
    assert trained["sums"] != pytest.approx(plain["sums"], rel=1e-3)


@pytest.mark.parametrize("kind", ["plain", "trained"])
def test_hooks_and_adapters_leave_no_trace(exports, checkpoint_of, model_type, kind):
    from safetensors import safe_open

    names = []
    for folder in (checkpoint_of(model_type), exports[model_type, kind][1]):
        with safe_open(folder / "model.safetensors", "pt") as file:
            names.append(set(file.keys()))
    assert names[0] == names[1]


def test_exporting_leaves_adapters_on_the_model(load, tmp_path, draw_waveforms):
    model, processor = load("wav2vec2")
    adapted = train_adapters(model)
    before = {name: value.clone() for name, value in adapted.state_dict().items()}
    export_ctc(adapted, processor, tmp_path)
    assert before.keys() == adapted.state_dict().keys()
    for name, value in adapted.state_dict().items():
        assert torch.equal(value, before[name])


def test_it_reloads_bit_exactly(load, model_type, tmp_path):
    model, processor = load(model_type)
    export_ctc(model, (processor.feature_extractor, processor.tokenizer), tmp_path)
    again = load_checkpoint(tmp_path)
    assert again.new_parameters == ()
    weights = again.model.state_dict()
    assert weights.keys() == model.state_dict().keys()
    for name, value in model.state_dict().items():
        assert torch.equal(weights[name], value), name
    assert again.processor.tokenizer.get_vocab() == processor.tokenizer.get_vocab()
    ours, theirs = (
        processor.feature_extractor.to_dict(),
        again.processor.feature_extractor.to_dict(),
    )
    assert {k: v for k, v in ours.items() if k not in ("mel_filters", "window")} == {
        k: v for k, v in theirs.items() if k not in ("mel_filters", "window")
    }


def test_weights_are_safetensors_only(checkpoint_of, model_type):
    folder = checkpoint_of(model_type)
    names = {path.name for path in folder.iterdir()}
    assert "model.safetensors" in names
    assert not [name for name in names if name.endswith((".bin", ".pt", ".pkl"))]


def test_half_precision_on_request(load, tmp_path):
    from safetensors.torch import load_file

    model, processor = load("wav2vec2")
    export_ctc(model, processor, tmp_path, dtype=torch.bfloat16)
    assert {value.dtype for value in load_file(tmp_path / "model.safetensors").values()} == {
        torch.bfloat16
    }
    assert model.dtype == torch.float32


def test_a_tokenizer_of_another_vocabulary_is_refused(load, model_type, vocabulary, tmp_path):
    model, processor = load(model_type)
    extractor = processor.feature_extractor
    for tokens, problem in (
        (vocabulary[:-1], "no token for output 29"),
        ((*vocabulary, "é"), "adds 'é'"),
    ):
        with pytest.raises(ConfigurationError, match=problem):
            export_ctc(model, (extractor, ctc_tokenizer(model_type, tokens)), tmp_path / "out")
    moved = (*vocabulary[1:], vocabulary[0])
    with pytest.raises(ConfigurationError, match="id 29, the model's blank is 0"):
        export_ctc(model, (extractor, ctc_tokenizer(model_type, moved)), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_directory_that_cannot_be_made_is_named(load, tmp_path):
    model, processor = load("wav2vec2")
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="file/export"):
        export_ctc(model, processor, tmp_path / "file" / "export")
