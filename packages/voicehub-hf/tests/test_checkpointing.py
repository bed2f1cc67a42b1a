"""Recomputing activations changes memory, not numbers."""

from __future__ import annotations

import pytest
import torch

from voicehub_hf.checkpointing import enable_gradient_checkpointing
from voicehub_hf.encoders import base_encoder
from voicehub_hf.features import prepare_features
from voicehub_hf.freezing import freeze_feature_encoder
from voicehub_hf.lora import add_lora
from voicehub_hf.spec_augment import disable_layer_drop, disable_native_spec_augment


@pytest.mark.parametrize("with_lora", [False, True])
def test_gradients_are_the_same(load, draw_waveforms, model_type, with_lora):
    gradients = []
    for checkpointing in (False, True):
        model, processor = load(model_type)
        disable_native_spec_augment(model)
        disable_layer_drop(model)
        freeze_feature_encoder(model)
        if with_lora:
            model = add_lora(model, rank=2)
        calls = []
        if checkpointing:
            enable_gradient_checkpointing(model)
        inner = base_encoder(model)
        layers = inner.get_submodule("layers" if hasattr(inner, "layers") else "encoder.layers")
        part = next(m for m in layers[1].modules() if isinstance(m, torch.nn.LayerNorm))
        part.register_forward_pre_hook(lambda *_, calls=calls: calls.append(1))
        inputs = prepare_features(processor, draw_waveforms(8000, 8000), 16000).inputs
        model.train()
        torch.manual_seed(1)
        model(**inputs).logits.square().mean().backward()
        assert len(calls) == 1 + checkpointing
        gradients.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    plain, recomputed = gradients
    assert plain.keys() == recomputed.keys()
    for name, gradient in plain.items():
        assert torch.allclose(gradient, recomputed[name], atol=1e-6), name
