"""WavLM's attention through its projections equals the one of transformers."""

from __future__ import annotations

import pytest
import torch

from voicehub_hf.features import prepare_features
from voicehub_hf.lora import add_lora, merge_lora
from voicehub_hf.wavlm_attention import call_attention_projections, restore_attention

pytestmark = pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask")


def outputs_and_gradients(model, inputs):
    model.zero_grad()
    logits = model(**inputs).logits
    valid = logits[:, :5]
    valid.square().sum().backward()
    return valid.detach(), {
        n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None
    }


@pytest.mark.parametrize("stable", [True, False])
def test_outputs_and_gradients_are_the_same(load, draw_waveforms, stable):
    model, processor = load("wavlm", do_stable_layer_norm=stable)
    inputs = prepare_features(processor, draw_waveforms(2000, 9000), 16000).inputs
    expected, gradients = outputs_and_gradients(model, inputs)
    assert call_attention_projections(model) == 2
    found, ours = outputs_and_gradients(model, inputs)
    assert torch.allclose(found, expected, atol=1e-5)
    assert ours.keys() == gradients.keys()
    for name, gradient in gradients.items():
        assert torch.allclose(ours[name], gradient, atol=1e-4, rtol=1e-4), name


def test_only_then_are_the_projections_called(load, draw_waveforms):
    model, processor = load("wavlm")
    inputs = prepare_features(processor, draw_waveforms(3000), 16000).inputs
    called = []
    for name, module in model.named_modules():
        if name.endswith(("q_proj", "v_proj")):
            module.register_forward_hook(lambda *_, name=name: called.append(name))
    with torch.no_grad():
        model(**inputs)
        assert called == []
        call_attention_projections(model)
        model(**inputs)
        assert len(called) == 4
        restore_attention(model)
        model(**inputs)
    assert len(called) == 4


def test_a_merged_model_has_the_attention_of_transformers_back(load, draw_waveforms):
    model, processor = load("wavlm")
    inputs = prepare_features(processor, draw_waveforms(3000), 16000).inputs
    adapted = add_lora(model, rank=2)
    with torch.no_grad():
        assert not adapted(**inputs, output_attentions=True).attentions
        merged = merge_lora(adapted)
        weights = merged(**inputs, output_attentions=True).attentions
    assert len(weights) == 2
    assert torch.allclose(weights[0].sum(-1), torch.ones(()), atol=1e-5)


def test_other_models_are_left_alone(load):
    assert call_attention_projections(load("wav2vec2")[0]) == 0
