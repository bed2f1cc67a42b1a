"""Artifacts: small, apart from their bases, equal after loading, and plain for peft."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import pytest
import torch

from voicehub.errors import CheckpointError, CheckpointMismatchError, ConfigurationError
from voicehub_asr_llm.config import AsrLlmModelConfig
from voicehub_asr_llm.decoders.loading import load_causal_lm, plain
from voicehub_asr_llm.model import AsrLlm
from voicehub_asr_llm.saving.parts import saved_names
from voicehub_asr_llm.testing import DECODERS
from voicehub_asr_llm.training import trained_names
from voicehub_hf.lora import merge_lora

TEXTS = ("hello", "Abc d")
ENCODERS = [
    "wav2vec2", "hubert", "wavlm", "wav2vec2-bert", "whisper", "parakeet_ctc",
    "granite_speech5_ctc", "recogniser",
]  # fmt: skip
PAIRS = [(kind, "llama") for kind in ENCODERS] + [
    ("granite_speech5_ctc", kind)
    for kind in DECODERS
    # Where these differ, in their heads, is in decoders/test_head.py.
    if kind not in ("llama", "gemma2", "granite")
]


def logits(model, batch):
    network = model.network.eval()
    with torch.no_grad():
        inputs = network.inputs(batch, network.hear(batch))
        found = plain(network.decoder)(inputs_embeds=inputs, position_ids=batch["positions"])
    return found.logits


@pytest.fixture
def trained(model_of, items_of, collate, descend, tmp_path):
    """A model after one step, its batch, and where it was saved."""

    def make(*parts, **changes):
        model = model_of(*parts, **changes)
        batch = collate(model, items_of(model, *TEXTS))
        # Adapters begin with a zero factor: two steps reach both.
        descend(model, batch, 2)
        model.save_pretrained(tmp_path / "artifact")
        return model, batch, tmp_path / "artifact"

    return make


@pytest.fixture(scope="module")
def shelf(model_of, items_of, collate, descend, tmp_path_factory):
    """A pair of encoder and decoder after two steps, its batch, and the folder of its artifact."""
    made = {}

    def get(pair):
        if pair not in made:
            folder = tmp_path_factory.mktemp("-".join(pair))
            model = model_of(*pair)
            batch = collate(model, items_of(model, *TEXTS))
            descend(model, batch, 2)
            model.save_pretrained(folder / "artifact")
            made[pair] = model, batch, folder
        return made[pair]

    return get


def apart(found, expected):
    """Largest difference, as a share of the largest value: merged weights are rounded once more."""
    return float((found - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_trained_saved_and_reloaded_gives_equal_logits_in_plain_peft_too(pair, shelf, decoder):
    model, batch, folder = shelf(pair)
    artifact = folder / "artifact"
    expected = logits(model, batch)
    again = AsrLlm.from_pretrained(artifact)
    assert torch.equal(logits(again, batch), expected)
    assert saved_names(artifact) == trained_names(model.network)
    # Adapters in plain peft over the plain base.
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(decoder(pair[1])).eval()
    with torch.no_grad():
        inputs = model.network.inputs(batch, model.network.hear(batch))
        options = {"inputs_embeds": inputs, "position_ids": batch["positions"]}
        # Adapters that do nothing would pass all that follows.
        assert not torch.allclose(base(**options).logits, expected, atol=1e-3)
        adapted = PeftModel.from_pretrained(base, artifact / "adapter").eval()
        assert torch.allclose(adapted(**options).logits, expected, atol=1e-6)
        merged = merge_lora(adapted)
        assert apart(merged(**options).logits, expected) < 1e-5


@pytest.mark.parametrize(
    "changes",
    [
        {"recipe": "projector"},
        {"recipe": "full"},
        {"recipe": "full", "freeze_text_embeddings": True},
        {"recipe": "custom", "freeze_text_embeddings": False},
        {"recipe": "lora", "freeze_encoder": False, "encoder__top_layers": 1},
    ],
    ids=lambda changes: "-".join(map(str, changes.values())),
)
def test_what_is_saved_is_what_has_trained(changes, trained):
    model, batch, artifact = trained(**changes)
    expected = logits(model, batch)
    assert saved_names(artifact) == trained_names(model.network)
    again = AsrLlm.from_pretrained(artifact)
    assert torch.equal(logits(again, batch), expected)
    scale = model.network.projector.output_scale
    assert torch.equal(again.network.projector.output_scale, scale)
    assert float(scale) != 1.0


def test_bases_are_named_with_a_hash_and_not_copied(trained, encoder, decoder):
    _, _, artifact = trained(recipe="lora")
    files = {str(path.relative_to(artifact)) for path in artifact.rglob("*.safetensors")}
    assert files == {"projector.safetensors", "adapter/adapter_model.safetensors"}
    stored = json.loads((artifact / "config.json").read_text())["model"]
    for part, path in (("encoder", encoder("granite_speech5_ctc")), ("decoder", decoder())):
        assert stored[part]["source"] == str(path)
        assert len(stored[part]["files"]["model.safetensors"]) == 64
    adapter = json.loads((artifact / "adapter" / "adapter_config.json").read_text())
    assert adapter["base_model_name_or_path"] == str(decoder())


def test_another_base_is_refused_and_a_moved_one_is_found(trained, decoder, tmp_path):
    _, batch, artifact = trained(recipe="lora")
    other = decoder("llama", seed=5)
    with pytest.raises(CheckpointMismatchError, match=r"decoder .* is another one .*decoder=PATH"):
        AsrLlm.from_pretrained(artifact, decoder=other, lazy_load=False)
    moved = tmp_path / "moved"
    moved.mkdir()
    for path in decoder().iterdir():
        (moved / path.name).write_bytes(path.read_bytes())
    found = AsrLlm.from_pretrained(artifact, decoder=moved, lazy_load=False)
    assert torch.equal(logits(found, batch), logits(AsrLlm.from_pretrained(artifact), batch))
    with pytest.raises(ConfigurationError, match="unknown option 'decodr'. Did you mean 'decoder'"):
        AsrLlm.from_pretrained(artifact, decodr=moved)


def test_an_artifact_without_one_of_its_files_is_refused(trained):
    _, _, artifact = trained(recipe="lora", freeze_encoder=False, encoder__top_layers=1)
    for name in ("adapter/adapter_model.safetensors", "encoder.safetensors"):
        hidden = (artifact / name).rename(artifact / "hidden")
        with pytest.raises(CheckpointError, match=f"{name} is missing"):
            AsrLlm.from_pretrained(artifact, lazy_load=False)
        hidden.rename(artifact / name)
    AsrLlm.from_pretrained(artifact, lazy_load=False)


def test_a_projector_of_another_shape_is_never_replaced_by_a_new_one(trained):
    _, _, artifact = trained(recipe="projector")
    path = artifact / "config.json"
    document = json.loads(path.read_text())
    document["model"]["config"]["projector"]["hidden_size"] = 32
    path.write_text(json.dumps(document))
    with pytest.raises(CheckpointMismatchError, match="'first.bias': expected"):
        AsrLlm.from_pretrained(artifact, lazy_load=False)


@pytest.mark.parametrize("recipe", ["lora", "full"])
def test_merged_decoders_load_in_plain_transformers(recipe, trained, tmp_path):
    model, batch, artifact = trained(recipe=recipe)
    expected = logits(model, batch)
    before = {n: p.clone() for n, p in model.network.named_parameters()}
    target = AsrLlm.from_pretrained(artifact).merge(tmp_path / "merged")
    found = load_causal_lm(target)
    with torch.no_grad():
        inputs = model.network.inputs(batch, model.network.hear(batch))
        got = found(inputs_embeds=inputs, position_ids=batch["positions"]).logits
    assert apart(got, expected) < 1e-5
    from transformers import AutoTokenizer

    assert AutoTokenizer.from_pretrained(target).chat_template
    assert all(torch.equal(p, before[n]) for n, p in model.network.named_parameters())


def test_the_command_merges(trained, tmp_path):
    from typer.testing import CliRunner

    from voicehub_asr_llm.cli.app import app

    _, _, artifact = trained(recipe="lora")
    target = tmp_path / "merged"
    result = CliRunner().invoke(app, ["merge", str(artifact), "--out", str(target), "--json"])
    assert result.exit_code == 0, result.output
    assert (target / "model.safetensors").is_file()


def test_a_template_from_a_file_travels_with_the_artifact(settings, tmp_path, items_of):
    from voicehub_asr_llm.testing import TEMPLATES

    path = tmp_path / "chat.jinja"
    path.write_text(TEMPLATES["headers"])
    values = settings(recipe="projector", decoder__chat_template=str(path))
    model = AsrLlm.from_config(AsrLlmModelConfig.model_validate(values)).load()
    model.save_pretrained(tmp_path / "artifact")
    path.unlink()
    again = AsrLlm.from_pretrained(tmp_path / "artifact")
    assert again.chat.prompts == model.chat.prompts


def test_plain_checkpoints_are_no_artifacts(decoder, trained):
    with pytest.raises(ConfigurationError, match="voicehub train asr-llm/lora"):
        AsrLlm.from_pretrained(decoder(), lazy_load=False)
    model, _, artifact = trained(recipe="projector")
    config = model.config.model_copy(deep=True)
    config.decoder.path = str(artifact)
    with pytest.raises(ConfigurationError, match="give it as init_from"):
        AsrLlm.from_config(config)


_FRESH = """
import sys, torch
from pathlib import Path
from safetensors.torch import load_file, save_file
from voicehub_asr_llm.decoders.loading import plain
from voicehub_asr_llm.model import AsrLlm
for folder in map(Path, sys.argv[1:]):
    given = load_file(folder / "batch.safetensors")
    batch = {name: t.tolist() if t.dtype == torch.int32 else t for name, t in given.items()}
    network = AsrLlm.from_pretrained(folder / "artifact", lazy_load=False).network
    with torch.no_grad():
        inputs = network.inputs(batch, network.hear(batch))
        found = plain(network.decoder)(inputs_embeds=inputs, position_ids=batch["positions"])
    save_file({"logits": found.logits}, folder / "logits.safetensors")
"""


def test_a_fresh_process_computes_the_same_from_the_audio_on(shelf):
    """All pairs in one process: it costs more to start than to load them."""
    from safetensors.torch import load_file, save_file

    has_recogniser = importlib.util.find_spec("voicehub_asr_ctc") is not None
    pairs = [pair for pair in PAIRS if has_recogniser or pair[0] != "recogniser"]
    for pair in pairs:
        _, batch, folder = shelf(pair)
        # Lists of integers travel in another dtype than the tensors of the batch.
        tensors = {
            name: torch.tensor(value, dtype=torch.int32) if isinstance(value, list) else value
            for name, value in batch.items()
        }
        save_file(tensors, folder / "batch.safetensors")
    subprocess.run(
        [sys.executable, "-c", _FRESH, *(str(shelf(pair)[2]) for pair in pairs)],
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())},
    )
    for pair in pairs:
        model, batch, folder = shelf(pair)
        found = load_file(folder / "logits.safetensors")["logits"]
        assert torch.allclose(found, logits(model, batch), atol=1e-6), pair
