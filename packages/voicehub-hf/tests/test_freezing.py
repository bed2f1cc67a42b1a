"""What trains after freezing, and that nothing else moves."""

from __future__ import annotations

import pytest
import torch

from voicehub_hf.encoders import base_encoder, ctc_encoder, ctc_head
from voicehub_hf.features import prepare_features
from voicehub_hf.freezing import (
    encoder_parameters,
    feature_encoder_modules,
    freeze_encoder,
    freeze_feature_encoder,
    head_parameters,
)


def trained_names(model, processor, waveforms) -> set[str]:
    """Names of parameters that one step of plain gradient descent changes."""
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    inputs = prepare_features(processor, waveforms, 16000).inputs
    model(**inputs).logits.square().mean().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter -= parameter.grad.sign() * 1e-3
    return {name for name, value in model.named_parameters() if not value.equal(before[name])}


def test_the_front_end_stays_bit_identical(load, draw_waveforms, model_type):
    model, processor = load(model_type)
    encoder = ctc_encoder(model)
    count = freeze_feature_encoder(model.train())
    prefixes = tuple(f"{encoder.base_name}.{path}." for path in encoder.front_end)
    frozen = {name for name, _ in model.named_parameters() if name.startswith(prefixes)}
    assert frozen
    assert count == sum(p.numel() for name, p in model.named_parameters() if name in frozen)
    trained = trained_names(model, processor, draw_waveforms(8000, 8000))
    assert not trained & frozen
    assert f"{encoder.head_name}.weight" in trained
    assert len(trained) > len(list(ctc_head(model).parameters()))
    assert all(not module.training for module in feature_encoder_modules(model))


def test_a_frozen_encoder_leaves_the_head(load, draw_waveforms, model_type):
    model, processor = load(model_type)
    count = freeze_encoder(model.train())
    assert count == sum(parameter.numel() for _, parameter in encoder_parameters(model))
    head = {name for name, _ in head_parameters(model)}
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    assert trained_names(model, processor, draw_waveforms(8000, 8000)) == head
    assert not base_encoder(model).training
    for name, value in model.named_buffers():
        assert value.equal(buffers[name]), name


def test_encoder_and_head_parameters_are_a_partition(load, model_type):
    model, _ = load(model_type)
    encoder = [name for name, _ in encoder_parameters(model)]
    head = [name for name, _ in head_parameters(model)]
    assert sorted(encoder + head) == sorted(name for name, _ in model.named_parameters())
    assert all(name.startswith(ctc_encoder(model).head_name) for name in head)
    assert len(head) == 2


@pytest.mark.parametrize("model_type", ["wav2vec2", "hubert", "wavlm"])
def test_no_graph_is_kept_for_frozen_convolutions(load, draw_waveforms, model_type):
    model, processor = load(model_type)
    freeze_feature_encoder(model.train())
    model.train()  # a trainer does this at every epoch
    features = base_encoder(model).feature_extractor
    output = features(
        prepare_features(processor, draw_waveforms(4000), 16000).inputs["input_values"]
    )
    assert not output.requires_grad
