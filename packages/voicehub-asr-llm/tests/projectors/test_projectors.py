"""Projectors: lengths, padding, calibration, the costs of the mixture."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from voicehub.errors import ConfigurationError
from voicehub_asr_llm.config import ProjectorConfig
from voicehub_asr_llm.decoders import embedding_rms
from voicehub_asr_llm.decoders.loading import load_causal_lm
from voicehub_asr_llm.projectors import build_projector, calibrate, probe_rms, projected_lengths

WIDTH, OUT = 6, 10
KINDS = {
    "mlp": {"hidden_size": 16},
    "moe": {"hidden_size": 8, "experts": 3, "active": 2},
    "qformer": {"hidden_size": 8, "num_heads": 2, "num_layers": 1, "window": 3},
}


def make(kind, stride=2, **changes):
    values = {"kind": kind, "stride": stride, **KINDS[kind], **changes}
    config = TypeAdapter(ProjectorConfig).validate_python(values)
    return build_projector(config, WIDTH, OUT, seed=0)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, deadline=None)
@given(stride=st.integers(1, 7), lengths=st.lists(st.integers(1, 40), min_size=1, max_size=3))
def test_lengths_follow_the_formula_whatever_is_beside(kind, stride, lengths):
    projector = make(kind, stride).double()
    torch.manual_seed(1)
    states = torch.randn(len(lengths), max(lengths), WIDTH).double()
    outputs = projector(states, torch.tensor(lengths)).outputs
    for row, length in enumerate(lengths):
        count = (length - stride) // stride + 1 if length >= stride else 0
        assert projected_lengths(length, stride) == count
        alone = projector(states[row : row + 1, :length], torch.tensor([length])).outputs
        assert alone.shape == (1, count, OUT)
        assert torch.allclose(outputs[row, :count], alone[0], atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_has_a_gradient_and_the_scale_is_none(kind):
    projector = make(kind)
    states = torch.randn(2, 13, WIDTH, requires_grad=True)
    found = projector(states, torch.tensor([13, 8]))
    loss = found.outputs.square().sum() + (0 if found.costs is None else found.costs.sum())
    loss.backward()
    assert states.grad.abs().sum() > 0
    assert all(p.grad is not None and p.grad.any() for p in projector.parameters())
    assert "output_scale" not in dict(projector.named_parameters())
    assert "output_scale" in projector.state_dict()


@pytest.mark.parametrize("kind", KINDS)
def test_calibration_makes_it_as_loud_as_the_embeddings(kind, decoder):
    target = embedding_rms(load_causal_lm(decoder("llama", initializer_range=0.015)))
    assert target == pytest.approx(0.015, rel=0.1)
    projector = make(kind)
    # Another probe than the one that calibrates.
    raw = probe_rms(projector, WIDTH, seed=7)
    assert raw > 5 * target
    before = calibrate(projector, WIDTH, target, seed=0)
    assert before == pytest.approx(raw, rel=0.2)
    assert probe_rms(projector, WIDTH, seed=7) == pytest.approx(target, rel=0.05)


def test_scaled_embeddings_count_as_they_enter_the_model(decoder):
    model = load_causal_lm(decoder("gemma3_text"))
    plain = model.get_input_embeddings().weight.detach().square().mean().sqrt()
    assert embedding_rms(model) == pytest.approx(float(plain) * 32**0.5, rel=1e-3)


def test_silent_outputs_cannot_be_calibrated():
    projector = make("mlp")
    torch.nn.init.zeros_(projector.second.weight)
    torch.nn.init.zeros_(projector.second.bias)
    with pytest.raises(ConfigurationError, match="output_rms"):
        calibrate(projector, WIDTH, 1.0)


def test_the_costs_of_the_mixture_are_those_of_the_formula():
    projector = make("moe", balance_weight=2.0, z_weight=3.0).double()
    states, frames = torch.randn(2, 9, WIDTH).double(), torch.tensor([9, 5])
    costs = projector(states, frames).costs
    for row, outputs in enumerate((4, 2)):
        x = projector.norm(projector.stacked(states[row : row + 1]))[0, :outputs]
        scores = projector.router(x)
        shares = scores.softmax(-1)
        picked = torch.zeros_like(shares)
        for place, best in enumerate(shares.topk(2, -1).indices):
            picked[place, best] = 1.0
        balance = 3 * (picked.sum(0) / (2 * outputs) * shares.mean(0)).sum()
        z = scores.logsumexp(-1).square().mean()
        assert torch.allclose(costs[row], 2.0 * balance + 3.0 * z, atol=1e-12)


def test_only_the_best_experts_speak():
    projector = make("moe", experts=3, active=1)
    states, frames = torch.randn(1, 8, WIDTH), torch.tensor([8])
    x = projector.norm(projector.stacked(states))
    chosen = projector.router(x).argmax(-1)[0]
    parts = torch.stack([expert(x)[0] for expert in projector.experts])
    expected = projector.shared(x)[0] + parts[chosen, torch.arange(4)]
    assert torch.allclose(projector(states, frames).outputs[0], expected, atol=1e-6)


def test_queries_see_their_own_window_alone():
    projector = make("qformer", stride=2, window=2)
    states = torch.randn(1, 12, WIDTH)
    before = projector(states, torch.tensor([12])).outputs
    states[:, 4:8] += 1.0
    moved = (projector(states, torch.tensor([12])).outputs - before).abs().amax(-1)[0] > 1e-6
    assert moved.tolist() == [False, False, True, True, False, False]
