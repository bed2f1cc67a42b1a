"""Cross-entropy of several heads without logits: values, gradients, skipping, compilation."""

from __future__ import annotations

import pytest
import torch

from voicehub.errors import DataError
from voicehub.kernels import load_loss
from voicehub.losses.linear_cross_entropy import IGNORED, linear_cross_entropy
from voicehub.losses.linear_cross_entropy.ops import _forward
from voicehub.losses.linear_cross_entropy.reference import linear_cross_entropy_reference

ROWS, HEADS, SIZE, VOCABULARY = 13, 3, 5, 7


def make(dtype=torch.float64, *, masked=0.3, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    hidden, weight = draw(ROWS, SIZE), draw(HEADS, VOCABULARY, SIZE)
    labels = torch.randint(0, VOCABULARY, (ROWS, HEADS), generator=generator)
    labels[torch.rand(ROWS, HEADS, generator=generator) < masked] = IGNORED
    factors = torch.rand(ROWS, HEADS, generator=generator, dtype=torch.float64)
    return hidden.requires_grad_(), weight.requires_grad_(), labels, factors


@pytest.mark.parametrize("chunk", [1, 4, 256])
def test_equals_the_loop_over_positions(chunk):
    hidden, weight, labels, factors = make()
    heads = torch.tensor([0.5, 2.0, 0.0], dtype=torch.float64)
    found = linear_cross_entropy(
        hidden, weight, labels, position_weights=factors, head_weights=heads, chunk=chunk
    )
    expected = linear_cross_entropy_reference(hidden, weight, labels, factors)
    torch.testing.assert_close(found.sums, expected.detach(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found.counts, (factors * (labels != IGNORED)).sum(0))
    ours = torch.autograd.grad(found.total, (hidden, weight))
    theirs = torch.autograd.grad((expected * heads).sum(), (hidden, weight))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_float32_is_near_the_loop():
    hidden, weight, labels, _ = make(torch.float32)
    found = linear_cross_entropy(hidden, weight, labels)
    expected = linear_cross_entropy_reference(hidden, weight, labels).detach()
    torch.testing.assert_close(found.sums, expected, rtol=1e-6, atol=1e-6)


def test_bfloat16_sums_are_wide():
    hidden, weight, labels, _ = make(torch.bfloat16)
    found = linear_cross_entropy(hidden, weight, labels)
    expected = linear_cross_entropy_reference(hidden, weight, labels).detach()
    assert found.total.dtype == torch.float32
    torch.testing.assert_close(found.sums, expected, rtol=2e-2, atol=2e-2)
    (gradient,) = torch.autograd.grad(found.total, hidden)
    assert gradient.dtype == torch.bfloat16


def test_rows_without_a_label_are_never_read():
    hidden, weight, labels, _ = make()
    labels[4] = IGNORED
    poisoned = hidden.detach().clone()
    poisoned[4] = float("nan")
    clean = linear_cross_entropy(hidden, weight, labels)
    found = linear_cross_entropy(poisoned.requires_grad_(), weight, labels)
    assert torch.equal(found.sums, clean.sums)
    (gradient,) = torch.autograd.grad(found.total, poisoned)
    assert not gradient[4].any() and gradient.isfinite().all()


def test_no_label_at_all_gives_zero():
    hidden, weight, labels, _ = make()
    found = linear_cross_entropy(hidden, weight, torch.full_like(labels, IGNORED))
    assert float(found.total.detach()) == 0.0 and not found.counts.any()
    assert not torch.autograd.grad(found.total, weight)[0].any()


def test_a_frozen_head_gets_no_gradient():
    hidden, weight, labels, _ = make()
    frozen = weight.detach()
    found = linear_cross_entropy(hidden, frozen, labels)
    (gradient,) = torch.autograd.grad(found.total, hidden)
    (expected,) = torch.autograd.grad(linear_cross_entropy(hidden, weight, labels).total, hidden)
    assert torch.equal(gradient, expected)


def test_equal_inputs_give_equal_bits():
    hidden, weight, labels, _ = make(torch.float32)

    def run():
        found = linear_cross_entropy(hidden, weight, labels, chunk=4)
        return found.total, *torch.autograd.grad(found.total, (hidden, weight))

    assert all(torch.equal(a, b) for a, b in zip(run(), run(), strict=True))


@pytest.mark.parametrize("gradients", [(True, True), (True, False), (False, False)])
def test_opcheck(gradients):
    hidden, weight, labels, factors = make(torch.float32)
    ones = torch.ones(HEADS)
    inputs = (hidden, weight, labels, factors.float(), ones, 4, *gradients, True)
    if not gradients[0]:
        inputs = (hidden.detach(), *inputs[1:])
    if not gradients[1]:
        inputs = (inputs[0], weight.detach(), *inputs[2:])
    results = torch.library.opcheck(_forward, inputs)
    assert set(results.values()) == {"SUCCESS"}


@pytest.mark.parametrize("label", [-1, VOCABULARY])
def test_a_label_out_of_range_is_named(label):
    hidden, weight, labels, _ = make()
    labels[2, 1] = label
    with pytest.raises(DataError, match=rf"label {label} of row 2 and head 1"):
        linear_cross_entropy(hidden, weight, labels)


@pytest.mark.parametrize("label", [-1, VOCABULARY, 2**62, -(2**62)])
def test_unchecked_it_costs_what_is_no_number_and_has_no_gradient(label):
    hidden, weight, labels, _ = make()
    spoiled = labels.clone()
    spoiled[2, 1], labels[2, 1] = label, IGNORED
    found, clean = (
        linear_cross_entropy(hidden, weight, own, check=False) for own in (spoiled, labels)
    )
    assert found.sums.isnan().tolist() == [False, True, False] and found.total.isnan()
    gradients = (torch.autograd.grad(one.total, (hidden, weight)) for one in (found, clean))
    for ours, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-12)


def test_shapes_are_checked():
    hidden, weight, labels, factors = make()
    with pytest.raises(DataError, match="must be \\(rows, size\\)"):
        linear_cross_entropy(hidden[:, 1:], weight, labels)
    with pytest.raises(DataError, match="one for each row and head"):
        linear_cross_entropy(hidden, weight, labels[:, 1:])
    with pytest.raises(DataError, match="position_weights"):
        linear_cross_entropy(hidden, weight, labels, position_weights=factors[1:])
    with pytest.raises(DataError, match="head_weights"):
        linear_cross_entropy(hidden, weight, labels, head_weights=torch.ones(HEADS + 1))


def test_is_registered():
    assert load_loss("core.linear_cross_entropy").functions.keys() == {"linear_cross_entropy"}
