"""What trains is what was named, moves, and nothing else; every part at its own rate."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from voicehub.adapters.auto import AutoTrainingAdapter
from voicehub.adapters.context import TrainingContext
from voicehub.errors import ConfigurationError
from voicehub.trainer.arguments import TrainingArguments
from voicehub_asr_llm.config import AsrLlmModelConfig
from voicehub_asr_llm.model import AsrLlm
from voicehub_asr_llm.training import trained_names

TEXTS = ("hello", "Abc d", "so")
FULL = {"recipe": "full"}
#: Settings, and what the names of everything that trains start with.
MODES = {
    "projector": ({"recipe": "projector"}, ["projector."]),
    "lora": ({"recipe": "lora"}, ["projector.", "decoder.*lora_"]),
    "adapters-alone": ({"recipe": "lora", "freeze_projector": True}, ["decoder.*lora_"]),
    "full": (FULL, ["projector.", "decoder."]),
    "full-but-embeddings": (
        {**FULL, "freeze_text_embeddings": True},
        ["projector.", "decoder.model.layers.", "decoder.model.norm.", "decoder.lm_head."],
    ),
    "embeddings": (
        {"recipe": "custom", "freeze_text_embeddings": False},
        ["projector.", "decoder.model.embed_tokens."],
    ),
    "encoder-top": (
        {"recipe": "projector", "freeze_encoder": False, "encoder__top_layers": 1},
        ["projector.", "encoder.model.layers.1."],
    ),
    "encoder": (
        {"recipe": "projector", "freeze_encoder": False},
        ["projector.", "encoder."],
    ),
}


def belongs(name, patterns):
    for pattern in patterns:
        start, _, inside = pattern.partition("*")
        if name.startswith(start) and inside in name:
            return True
    return False


def adapter_of(model_of, *parts, **changes):
    adapter = AutoTrainingAdapter.from_model(model_of(*parts, load=False, **changes))
    adapter.setup()
    adapter.train_mode()
    return adapter


def step(adapter, batch, rate=0.05):
    context = TrainingContext(adapter.phases[0], batch, 0, 0.0, True, {})
    output = adapter.execute_training_phase(context)
    adapter.module.zero_grad()
    output.loss.backward()
    with torch.no_grad():
        for parameter in adapter.module.parameters():
            if parameter.grad is not None:
                parameter -= rate * parameter.grad


@pytest.mark.parametrize("mode", MODES)
def test_the_trained_set_is_the_named_one_and_alone_moves(mode, model_of, items_of, collate):
    changes, patterns = MODES[mode]
    adapter = adapter_of(model_of, **changes)
    model, network = adapter.model, adapter.module
    golden = {n for n, _ in network.named_parameters() if belongs(n, patterns)}
    assert trained_names(network) == golden
    before = {n: t.clone() for n, t in network.state_dict().items()}
    batch = collate(model, items_of(model, *TEXTS))
    for _ in range(3):
        step(adapter, batch)
    moved = {n for n, t in network.state_dict().items() if not torch.equal(t, before[n])}
    assert moved <= golden
    # The encoder's own output layer reads nothing here, and takes part half-way up alone.
    still = {n for n in golden - moved if "rel_pos_emb" not in n}
    assert not still


def test_frozen_parts_and_batch_norm_are_in_eval_mode(model_of, items_of, collate):
    adapter = adapter_of(model_of, recipe="projector", freeze_encoder=False, encoder__top_layers=1)
    encoder = adapter.module.encoder
    norms = [m for m in encoder.modules() if isinstance(m, nn.BatchNorm1d)]
    assert len(norms) == 2
    assert not any(module.training for module in norms)
    assert encoder.layers()[1].training
    assert not encoder.layers()[0].training
    assert not any(module.training for module in adapter.module.decoder.modules())
    assert adapter.module.projector.training
    batch = collate(adapter.model, items_of(adapter.model, *TEXTS))
    step(adapter, batch)
    assert all(int(norm.num_batches_tracked) == 0 for norm in norms)


def test_a_frozen_encoder_keeps_nothing_for_a_backward(model_of, items_of, collate):
    model = model_of(recipe="projector")
    batch = collate(model, items_of(model, *TEXTS))
    seen = []
    model.network.projector.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model.network.hear(batch)
    assert not seen[0].requires_grad


def test_more_layers_than_there_are_is_refused(model_of):
    with pytest.raises(ConfigurationError, match="top_layers is 3; the encoder has 2"):
        model_of(recipe="projector", freeze_encoder=False, encoder__top_layers=3)


def test_adapters_lie_on_all_linear_layers_but_the_output(model_of):
    model = model_of(recipe="lora")
    decoder = model.network.decoder
    inner = decoder.get_base_model()
    base = {
        name: module
        for name, module in inner.named_modules()
        if type(module).__name__ == "Linear" and hasattr(module, "lora_A")
    }
    assert len(base) == 2 * 7
    assert not any("lm_head" in name for name in base)
    count = sum(2 * (m.in_features + m.out_features) for m in base.values())
    assert count == sum(p.numel() for n, p in decoder.named_parameters() if ".lora_" in n)


def test_adapters_start_as_nothing(model_of, items_of, collate):
    batch_model = model_of(recipe="projector")
    batch = collate(batch_model, items_of(batch_model, *TEXTS))
    losses = [
        float(model_of(recipe=recipe).network.ask(batch)[0].total.detach())
        for recipe in ("projector", "lora")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_storage_of_half_precision_bases(model_of, items_of, collate):
    model = model_of(recipe="lora", encoder__dtype="bfloat16", decoder__dtype="bfloat16")
    network = model.network
    dtypes = {
        "encoder": {p.dtype for n, p in network.encoder.named_parameters() if "conv.norm" not in n},
        "base": {p.dtype for n, p in network.decoder.named_parameters() if ".lora_" not in n},
        "trained": {p.dtype for p in network.parameters() if p.requires_grad},
    }
    assert dtypes == {
        "encoder": {torch.bfloat16}, "base": {torch.bfloat16}, "trained": {torch.float32},
    }  # fmt: skip
    batch = collate(model, items_of(model, *TEXTS))
    with torch.autocast("cpu", torch.bfloat16):
        found, _ = network.ask(batch)
    assert found.total.dtype == torch.float32
    assert found.total.isfinite()


def test_small_updates_of_float32_weights_survive_bfloat16_compute(model_of, items_of, collate):
    model = model_of(recipe="full")
    weight = model.network.decoder.model.norm.weight
    batch = collate(model, items_of(model, "hello"))
    start = weight.detach().clone()
    for update in range(100):
        if update % 50 == 0:
            with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
                model.network.ask(batch)
        with torch.no_grad():
            weight.mul_(1 + 1e-5)
    grown = (weight / start).mean().item()
    assert grown == pytest.approx((1 + 1e-5) ** 100, rel=1e-5)


def test_every_part_has_its_rate_and_decay(model_of):
    model = model_of(
        "granite_speech5_ctc",
        "qwen3_5_text",
        recipe="full",
        projector__learning_rate=1e-3,
        projector__weight_decay=0.01,
        freeze_encoder=False,
        encoder__top_layers=1,
        encoder__learning_rate=1e-5,
    )
    adapter = AutoTrainingAdapter.from_model(model)
    adapter.setup()
    (name, named), *_ = adapter.routes.items()
    args = TrainingArguments(learning_rate=2e-5, weight_decay=0.1)
    groups = adapter.optimizer_groups(name, named, args)
    assert sum(len(group["params"]) for group in groups) == len(named)
    found = {group["name"]: (group["lr"], group["weight_decay"]) for group in groups}
    assert found == {
        "encoder": (1e-5, 0.1), "encoder (no decay)": (1e-5, 0.0),
        "projector": (1e-3, 0.01), "projector (no decay)": (1e-3, 0.0),
        "decoder": (2e-5, 0.1), "decoder (no decay)": (2e-5, 0.0),
    }  # fmt: skip
    names = {id(p): n for n, p in named}
    kept = {
        names[id(p)] for group in groups if group["weight_decay"] == 0.0 for p in group["params"]
    }
    for part in ("A_log", "dt_bias", "conv1d.weight", "embed_tokens", "norm", "bias"):
        assert any(part in n for n in kept)
    assert not any(n.endswith(("q_proj.weight", "projector.first.weight")) for n in kept)


def test_a_tied_output_layer_follows_its_embeddings(settings, decoder):
    values = settings(recipe="full", freeze_text_embeddings=True)
    values["decoder"]["path"] = str(decoder("llama", tie_word_embeddings=True))
    model = AsrLlm.from_config(AsrLlmModelConfig.model_validate(values)).load_for_training()
    head = model.network.decoder.get_output_embeddings().weight
    assert not head.requires_grad
    assert not any("embed" in n or "lm_head" in n for n in trained_names(model.network))


def test_the_costs_of_a_mixture_reach_the_loss(model_of, items_of, collate):
    projector = {"kind": "moe", "stride": 2, "hidden_size": 8, "experts": 3}
    model = model_of(recipe="projector", projector=projector, load=False)
    adapter = AutoTrainingAdapter.from_model(model)
    adapter.setup()
    batch = collate(model, items_of(model, *TEXTS))
    context = TrainingContext(adapter.phases[0], batch, 0, 0.0, True, {})
    output = adapter.execute_training_phase(context)
    parts = output.losses
    assert float(parts["projector"]) > 0
    total = float(parts["tokens"] + parts["projector"])
    assert float(output.loss.detach()) == pytest.approx(total)
