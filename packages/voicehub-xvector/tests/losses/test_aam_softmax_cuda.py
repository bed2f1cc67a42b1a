"""The operator on a GPU: the numbers of the CPU, the same bits in every run."""

from __future__ import annotations

import pytest
import torch

from voicehub.errors import DataError
from voicehub_xvector.losses.aam_softmax import aam_softmax

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

OPTIONS = {"scale": 30.0, "margin": 0.2, "sub_centres": 2, "inter_top_k": 3, "inter_margin": 0.1}


def step(device, labels_of=lambda labels: labels, **extra):
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(48, 100, generator=generator).to(device).requires_grad_()
    weight = torch.randn(2 * 3001, 100, generator=generator).to(device).requires_grad_()
    labels = labels_of(torch.randint(0, 3001, (48,), generator=generator)).to(device)
    losses = aam_softmax(embeddings, weight, labels, **OPTIONS, **extra)
    losses.nansum().backward()
    return losses.detach(), embeddings.grad, weight.grad


def test_has_the_numbers_of_the_cpu_and_the_same_bits_in_twenty_runs():
    expected, first = step("cpu"), step("cuda")
    for ours, theirs in zip(first, expected, strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-4, atol=1e-4)
    for _ in range(20):
        assert all(torch.equal(a, b) for a, b in zip(step("cuda"), first, strict=True))


def test_compiles_there():
    generator = torch.Generator(device="cuda").manual_seed(0)
    embeddings = torch.randn(8, 32, generator=generator, device="cuda")
    weight = torch.randn(100, 32, generator=generator, device="cuda")
    labels = torch.arange(8, device="cuda")

    def loss(scaled):
        return aam_softmax(2.0 * scaled, weight, labels, scale=30.0, margin=0.2).sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(embeddings), loss(embeddings))


def test_bad_labels_are_a_nan_or_with_check_an_error():
    def spoil(labels):
        labels[5] = 3001
        return labels

    losses, embeddings, _ = step("cuda", spoil)
    assert losses.isnan().nonzero().flatten().tolist() == [5] and embeddings[5].abs().sum() == 0
    with pytest.raises(DataError, match="label 3001 of item 5"):
        step("cuda", spoil, check=True)
