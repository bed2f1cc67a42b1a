"""Each mode trains exactly what its golden table says, and leaves the rest bit for bit."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from voicehub.adapters.auto import AutoTrainingAdapter
from voicehub.errors import ConfigurationError, UnsupportedTrainingError
from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.trainer import Trainer
from voicehub_xvector.conformance import voice
from voicehub_xvector.data import XVectorCollator, XVectorItem
from voicehub_xvector.train_modes import ENCODER_MODES, Layout, trainable_names

HERE = Path(__file__).parent


def _cases():
    spec = importlib.util.spec_from_file_location("train_mode_cases", HERE / "train_mode_cases.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["train_mode_cases"] = module
    spec.loader.exec_module(module)
    return module


cases = _cases()
ENCODER_CASES = [case for case, kind in cases.CASES.items() if kind != "logmel"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("modes")


@pytest.mark.parametrize("case", cases.CASES)
def test_golden_table(case, folder):
    assert cases.matrix(case, folder) == (HERE / "golden" / f"{case}.txt").read_text()


@pytest.mark.parametrize("case", ["logmel", "wav2vec2"])
def test_frozen_is_for_extraction(case, folder):
    with pytest.raises(UnsupportedTrainingError, match="voicehub extract"):
        cases.build(case, "frozen", folder).load_for_training()


def test_an_unknown_mode_names_the_nearest(folder):
    with pytest.raises(ValueError, match="Did you mean 'hf-lora'"):
        cases.build("wav2vec2", "hf-lore", folder)


def test_a_lora_mode_without_adapters_is_an_error():
    with pytest.raises(ConfigurationError, match="the network has none"):
        trainable_names("hf-lora", ["encoder.layers.0.weight", "head.weight"], Layout())


def test_a_mode_that_matches_nothing_is_an_error():
    with pytest.raises(ConfigurationError, match="matches no parameter"):
        trainable_names("ft-xvector", ["encoder.layers.0.weight"], Layout())


def test_adapters_on_nothing_are_an_error(folder):
    model = cases.build("hubert", "hf-lora", folder, lora={"target_modules": ["querry"]})
    with pytest.raises(ConfigurationError, match="match no module"):
        model.load_for_training()


def test_lora_settings_outside_its_modes_are_an_error(folder):
    with pytest.raises(ValueError, match="lora is read by hf-lora"):
        cases.build("hubert", "full", folder, lora={"rank": 2})


def _items(model, count=8):
    items = []
    for seed in range(count):
        _, audio = voice(seed, 6400 + 320 * (seed % 3))
        label = seed % len(cases.SPEAKERS)
        prepared = model.front_end.prepare(audio)
        name = cases.SPEAKERS[label]
        items.append(XVectorItem(f"s{seed}", prepared, label, name, 0.4, None))
    return items


def _state(network):
    return {name: tensor.clone() for name, tensor in network.state_dict().items()}


#: Modes with another frozen part each; ECAPA and ResNet1d have BatchNorm in theirs.
STEPPED = [
    ("logmel", "ft-embed-affine"),
    ("logmel-ecapa", "ft-embed-affine"),
    ("wav2vec2", "ft-embed-affine"),
    ("hubert", "ft-xvector-nograd"),
    ("wavlm", "hf-feats-frozen"),
    ("wav2vec2", "hf-feat-extractor-frozen"),
    ("wav2vec2-bert", "hf-feat-extractor-frozen"),
    ("wavlm", "hf-lora"),
    ("whisper", "hf-all-bias-lora"),
    ("wav2vec2-bert", "hf-lora-with-bias"),
]


@pytest.mark.parametrize(("case", "mode"), STEPPED)
def test_three_steps_leave_frozen_parts_alone(case, mode, folder, tmp_path):
    torch.manual_seed(0)
    model = cases.build(case, mode, folder)
    adapter = AutoTrainingAdapter.from_model(model)
    adapter.setup()
    trains = {name for name, p in model.network.named_parameters() if p.requires_grad}
    before = _state(model.network)
    arguments = TrainingArguments(
        output_dir=str(tmp_path), max_steps=3, learning_rate=1e-2, weight_decay=0.1,
        use_cpu=True, save_strategy="no", logging_strategy="no",
        per_device_train_batch_size=4,
    )  # fmt: skip
    trainer = Trainer(
        model=model, args=arguments, training_adapter=adapter, train_dataset=_items(model),
        data_collator=XVectorCollator(model.front_end),
    )  # fmt: skip
    trainer.train()
    after = _state(model.network)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    frozen = {name for name, _ in model.network.named_parameters()} - trains
    assert not changed & frozen
    # An adapter's first matrix moves as soon as its second has left zero.
    assert trains - changed == set()
    frozen_modules = [m for m in model.network.modules() if _is_frozen(m)]
    assert frozen_modules and not any(part.training for part in frozen_modules)
    buffers = {name for name, _ in model.network.named_buffers()} & changed
    assert not [name for name in buffers if _below_frozen(model.network, name)]
    (optimizer,) = trainer.graph.optimizers.optimizers.values()
    kept = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert kept == {id(p) for p in model.network.parameters() if p.requires_grad}
    assert len(optimizer.state) == len(trains)


def _is_frozen(module):
    own = list(module.parameters())
    return bool(own) and not any(p.requires_grad for p in own)


def _below_frozen(network, name):
    return _is_frozen(network.get_submodule(name.rpartition(".")[0]))


@pytest.mark.parametrize(
    ("case", "mode"), [("wavlm", "hf-feats-frozen"), ("whisper", "ft-xvector")]
)
def test_two_forwards_of_a_frozen_encoder_are_equal(case, mode, folder):
    model = cases.build(case, mode, folder)
    adapter = AutoTrainingAdapter.from_model(model)
    adapter.setup()
    adapter.train_mode()
    batch = XVectorCollator(model.front_end)(_items(model, 3))
    rows, lengths = batch[model.front_end.input_name], batch["lengths"]
    first, _ = model.network.hidden_states(rows, lengths)
    second, _ = model.network.hidden_states(rows, lengths)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert not any(state.requires_grad for state in first)


@pytest.mark.parametrize("case", ENCODER_CASES)
def test_adapters_change_nothing_at_step_0(case, folder):
    torch.manual_seed(1)
    adapted = cases.build(case, "hf-lora", folder).load_for_training()
    torch.manual_seed(1)
    base = cases.build(case, "ft-xvector", folder).load_for_training()
    waves = [voice(3, 8000)[1], voice(4, 6000)[1]]
    difference = adapted.embed(waves, 16000) - base.embed(waves, 16000)
    assert difference.abs().max() < 1e-6
    trained = sum(p.numel() for n, p in adapted.network.named_parameters() if ".lora_" in n)
    # Two layers, two projections each, rank 4: r (inputs + outputs).
    assert trained == 2 * 2 * 4 * (24 + 24)


@pytest.mark.parametrize("case", ["wavlm", "whisper", "wav2vec2-bert"])
def test_trained_adapters_merge_and_load_in_peft(case, folder, tmp_path):
    from peft import PeftModel

    from voicehub_hf.speech_encoders import load_speech_encoder
    from voicehub_hf.wavlm_attention import call_attention_projections

    torch.manual_seed(1)
    model = cases.build(case, "hf-lora", folder).load_for_training()
    with torch.no_grad():
        for name, parameter in model.network.named_parameters():
            if ".lora_B." in name:
                parameter.normal_(std=0.1)
    waves = [voice(3, 8000)[1]]
    unmerged = model.embed(waves, 16000)
    model.save_pretrained(tmp_path)
    reloaded = type(model)(tmp_path, model_type=model.model_type).load()
    assert (reloaded.embed(waves, 16000) - unmerged).abs().max() < 1e-5
    assert not any("lora" in name for name, _ in reloaded.network.named_parameters())
    kind = cases.CASES[case]
    base = load_speech_encoder(folder / kind, model_type=kind)
    alone = PeftModel.from_pretrained(base, tmp_path / "lora").eval()
    call_attention_projections(alone)
    prepared = model.front_end.batch([model.front_end.prepare(waves[0])])
    model.network.encoder = alone
    again = model.embed(waves, 16000)
    assert len(prepared["lengths"]) == 1 and (again - unmerged).abs().max() < 1e-5


def test_every_mode_is_in_the_documentation():
    page = (HERE.parents[2] / "docs" / "xvector.md").read_text()
    assert [mode for mode in ENCODER_MODES if f"`{mode}`" not in page] == []


def test_items_are_reproducible(folder):
    model = cases.build("logmel", "full", folder)
    first, second = _items(model, 1)[0], _items(model, 1)[0]
    assert np.array_equal(first.prepared.rows.numpy(), second.prepared.rows.numpy())
