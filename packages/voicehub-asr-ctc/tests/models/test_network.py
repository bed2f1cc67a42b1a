"""Outputs of an utterance are those it has alone, whatever is beside or behind it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from voicehub_asr_ctc.losses import ctc_loss
from voicehub_asr_ctc.network import LogMelNetwork, NetworkConfig, output_frames


def network(**changes):
    sizes = {
        "n_mels": 8, "num_tokens": 5, "hidden_size": 16, "num_blocks": 3, "kernel_size": 5,
        "attention_every": 2, "num_heads": 2, "dropout": 0.0, "intermediate": False,
    }  # fmt: skip
    torch.manual_seed(0)
    return LogMelNetwork(NetworkConfig(**{**sizes, **changes})).double()


@settings(max_examples=30, deadline=None)
@given(length=st.integers(1, 60))
def test_frames_are_what_the_formula_says(length):
    model = network().eval()
    out = model(torch.randn(1, length, 8).double(), torch.tensor([length]))
    assert out.logits.shape == (1, output_frames(length), 5)


@settings(max_examples=20, deadline=None)
@given(lengths=st.lists(st.integers(1, 40), min_size=2, max_size=4), seed=st.integers(0, 99))
def test_padding_and_batch_mates_change_nothing(lengths, seed):
    model = network().eval()
    generator = torch.Generator().manual_seed(seed)
    longest = max(lengths) + 7
    clips = [torch.randn(n, 8, generator=generator).double() for n in lengths]
    batch = 1e3 * torch.randn(len(clips), longest, 8, generator=generator).double()
    for row, clip in zip(batch, clips, strict=True):
        row[: len(clip)] = clip
    together = model(batch, torch.tensor(lengths)).logits
    for row, clip in zip(together, clips, strict=True):
        alone = model(clip[None], torch.tensor([len(clip)])).logits[0]
        torch.testing.assert_close(row[: len(alone)], alone, rtol=0, atol=1e-10)


def test_the_gradient_does_not_see_the_padding_either():
    clip = torch.randn(21, 8, generator=torch.Generator().manual_seed(3)).double()
    gradients = []
    for extra in (0, 12):
        model = network().train()
        batch = torch.full((1, 21 + extra, 8), 50.0).double()
        batch[0, :21] = clip
        logits = model(batch, torch.tensor([21])).logits
        ctc_loss(logits, [11], torch.tensor([[1, 2, 3]]), [3], blank=0).loss.backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    for short, long in zip(*gradients, strict=True):
        torch.testing.assert_close(short, long, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("training", [True, False])
def test_scores_half_way_exist_in_training_alone(training):
    model = network(intermediate=True, num_blocks=4).train(training)
    out = model(torch.randn(2, 20, 8).double(), torch.tensor([20, 9]))
    assert (out.intermediate_logits is not None) is training
    if training:
        assert out.intermediate_logits.shape == out.logits.shape


def test_no_statistics_over_the_batch():
    norms = [m for m in network().modules() if isinstance(m, torch.nn.modules.batchnorm._NormBase)]
    assert norms == []


def test_encode_gives_what_the_output_layer_reads():
    model = network(intermediate=True).eval()
    features, lengths = torch.randn(2, 9, 8).double(), torch.tensor([9, 4])
    states, frames = model.encode(features, lengths)
    assert frames.tolist() == [output_frames(9), output_frames(4)]
    assert torch.equal(model.head(states), model(features, lengths).logits)
