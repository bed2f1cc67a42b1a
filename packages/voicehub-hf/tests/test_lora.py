"""Low-rank adapters: counted, trained, merged, saved, and loaded by plain peft."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from voicehub.errors import ConfigurationError
from voicehub_hf.encoders import base_encoder, ctc_encoder, ctc_head
from voicehub_hf.features import prepare_features
from voicehub_hf.freezing import encoder_parameters
from voicehub_hf.lora import add_lora, linear_module_suffixes, lora_parameter_count, merge_lora


def logits_of(model, processor, waveforms):
    with torch.no_grad():
        return model(**prepare_features(processor, waveforms, 16000).inputs).logits


def randomise_adapters(model, seed: int = 0) -> None:
    """Adapters start as zero updates; give them and the head something to say."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            scale = 0.3 if ".lora_" in name else 0.05
            noise = torch.randn(parameter.shape, generator=generator) * scale
            parameter.data.add_(noise)


@pytest.fixture
def adapted(load, model_type):
    model, processor = load(model_type)
    adapted = add_lora(model, rank=3, alpha=6).eval()
    randomise_adapters(adapted)
    return adapted, processor


def test_the_number_of_parameters_is_that_of_the_formula(load, model_type):
    model, _ = load(model_type)
    targets = ctc_encoder(model).lora_targets
    linears = [
        module
        for name, module in model.named_modules()
        if name.endswith(targets) and isinstance(module, nn.Linear)
    ]
    expected = sum(3 * (module.in_features + module.out_features) for module in linears)
    adapted = add_lora(model, rank=3)
    assert lora_parameter_count(adapted) == expected > 0
    trainable = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
    head = sum(p.numel() for p in ctc_head(adapted).parameters() if p.requires_grad)
    assert trainable == expected + head
    assert head == (24 + 1) * model.config.vocab_size


def test_adapters_start_as_the_identity(load, draw_waveforms, model_type):
    model, processor = load(model_type)
    waves = draw_waveforms(5000, 9000)
    before = logits_of(model, processor, waves)
    after = logits_of(add_lora(model, rank=3).eval(), processor, waves)
    assert torch.allclose(before, after, atol=1e-6)


def test_every_adapter_and_the_head_get_a_gradient(adapted, draw_waveforms):
    model, processor = adapted
    inputs = prepare_features(processor, draw_waveforms(8000, 8000), 16000).inputs
    model(**inputs).logits.square().mean().backward()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None, name
            assert parameter.grad.abs().sum() > 0, name
        else:
            assert parameter.grad is None, name


def test_the_seed_decides_the_first_values(load, model_type):
    state = torch.random.get_rng_state()
    drawn = []
    for seed in (1, 1, 2):
        adapted = add_lora(load(model_type)[0], rank=2, seed=seed)
        drawn.append({n: p for n, p in adapted.named_parameters() if ".lora_A" in n})
    assert torch.equal(torch.random.get_rng_state(), state)
    first, same, other = drawn
    assert first
    for name, value in first.items():
        assert torch.equal(value, same[name])
        assert not torch.equal(value, other[name])


def test_adapters_change_the_output(adapted, draw_waveforms):
    model, processor = adapted
    waves = draw_waveforms(5000)
    changed = logits_of(model, processor, waves)
    for name, parameter in model.named_parameters():
        if ".lora_B" in name:
            parameter.data.zero_()
    assert (logits_of(model, processor, waves) - changed).abs().max() > 1e-3


def test_merged_equals_unmerged(adapted, draw_waveforms):
    model, processor = adapted
    waves = draw_waveforms(5000, 9000)
    before = logits_of(model, processor, waves)
    architecture = ctc_encoder(model).architecture
    merged = merge_lora(model)
    assert type(merged).__name__ == architecture
    assert not [name for name in merged.state_dict() if "lora" in name or "base_layer" in name]
    assert (logits_of(merged, processor, waves) - before).abs().max() < 1e-5


def test_merging_a_copy_leaves_the_model_alone(adapted, draw_waveforms):
    model, processor = adapted
    waves = draw_waveforms(5000)
    before = logits_of(model, processor, waves)
    merge_lora(copy.deepcopy(model))
    assert torch.equal(logits_of(model, processor, waves), before)
    assert lora_parameter_count(model) > 0


def test_saved_adapters_load_in_plain_peft(adapted, load, draw_waveforms, tmp_path, model_type):
    from peft import PeftModel

    model, processor = adapted
    waves = draw_waveforms(5000, 9000)
    expected = logits_of(model, processor, waves)
    model.save_pretrained(tmp_path)
    assert (tmp_path / "adapter_model.safetensors").is_file()
    plain, _ = load(model_type)
    loaded = PeftModel.from_pretrained(plain, tmp_path)
    if model_type == "wavlm":
        # Its attention in transformers reads the weights past the adapters, until merged.
        loaded = loaded.merge_and_unload()
    assert (logits_of(loaded.eval(), processor, waves) - expected).abs().max() < 1e-5


def test_names_that_match_nothing_are_an_error_with_candidates(load, model_type):
    model, _ = load(model_type)
    before = [name for name, _ in model.named_modules()]
    with pytest.raises(ConfigurationError) as caught:
        add_lora(model, target_modules=["query"])
    assert "query" in str(caught.value)
    for target in ctc_encoder(model).lora_targets:
        assert target in str(caught.value)
    assert [name for name, _ in model.named_modules()] == before
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_other_targets(load, draw_waveforms, model_type):
    model, processor = load(model_type)
    suffixes = linear_module_suffixes(model)
    assert set(ctc_encoder(model).lora_targets) < set(suffixes)
    adapted = add_lora(model, rank=2, alpha=4, target_modules="all-linear", train_head=False).eval()
    randomise_adapters(adapted)
    found = {
        name.split(".lora_A")[0].rsplit(".", 1)[-1]
        for name, _ in adapted.named_parameters()
        if ".lora_A" in name
    }
    assert found == set(suffixes)
    assert not any(p.requires_grad for n, p in adapted.named_parameters() if ".lora_" not in n)
    waves = draw_waveforms(5000)
    before = logits_of(adapted, processor, waves)
    assert (logits_of(merge_lora(adapted), processor, waves) - before).abs().max() < 1e-5


def test_a_regular_expression_picks_one_layer(load):
    model, _ = load("wav2vec2")
    adapted = add_lora(model, target_modules=r".*layers\.1\.attention\.k_proj")
    names = [name for name, _ in adapted.named_parameters() if ".lora_A" in name]
    assert len(names) == 1
    assert "layers.1.attention.k_proj" in names[0]


def test_the_head_is_not_adapted_and_trained_at_once(load):
    model, _ = load("wav2vec2")
    with pytest.raises(ConfigurationError, match="lm_head"):
        add_lora(model, target_modules=["q_proj", "lm_head"])


@pytest.mark.parametrize("bad", [{"rank": 0}, {"alpha": 0}, {"dropout": 1.0}])
def test_settings_out_of_range_are_named(load, bad):
    with pytest.raises(ConfigurationError, match=next(iter(bad))):
        add_lora(load("wav2vec2")[0], **bad)


def test_helpers_see_through_the_wrapper(adapted, model_type):
    model, _ = adapted
    encoder = ctc_encoder(model)
    assert encoder.model_type == model_type
    assert base_encoder(model) is getattr(model.get_base_model(), encoder.base_name)
    trainable = [name for name, p in encoder_parameters(model) if p.requires_grad]
    assert trainable
    assert all(".lora_" in name for name in trainable)


def test_merging_a_model_without_adapters_returns_it(load):
    model, _ = load("hubert")
    assert merge_lora(model) is model
