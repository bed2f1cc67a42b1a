"""The operator against its definition, and what an operator of torch must hold."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn import functional

from voicehub.errors import DataError
from voicehub.kernels import load_loss
from voicehub_xvector.losses.aam_softmax import aam_softmax, ops
from voicehub_xvector.losses.aam_softmax.reference import aam_softmax_reference
from voicehub_xvector.speechbrain_parts import speechbrain_part

DEFAULTS = {"scale": 30.0, "margin": 0.2}


def draw(seed, batch=5, classes=7, sub_centres=1, size=6, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    embeddings = torch.randn(batch, size, generator=generator, dtype=dtype)
    weight = torch.randn(classes * sub_centres, size, generator=generator, dtype=dtype)
    labels = torch.randint(0, classes, (batch,), generator=generator)
    return embeddings, weight, labels


def reference(embeddings, weight, labels, *, sub_centres=1, **options):
    centres = weight.view(-1, sub_centres, weight.shape[1]).tolist()
    rows = zip(embeddings.tolist(), labels.tolist(), strict=True)
    values = [aam_softmax_reference(e, centres, label, **options) for e, label in rows]
    return torch.tensor(values, dtype=torch.float64)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1000),
    classes=st.integers(1, 9),
    sub_centres=st.integers(1, 3),
    inter_top_k=st.integers(0, 4),
    angular=st.booleans(),
    chunk=st.integers(1, 40),
    margin=st.sampled_from([0.0, 0.2, 1.2]),
)
def test_equals_the_definition(seed, classes, sub_centres, inter_top_k, angular, chunk, margin):
    embeddings, weight, labels = draw(seed, classes=classes, sub_centres=sub_centres)
    options = {"scale": 20.0, "margin": margin, "angular": angular, "sub_centres": sub_centres}
    near = {"inter_top_k": inter_top_k, "inter_margin": 0.15}
    losses = aam_softmax(embeddings, weight, labels, **options, **near, class_chunk=chunk)
    expected = reference(embeddings, weight, labels, **options, **near)
    torch.testing.assert_close(losses, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("angle", [0.0, 0.1, 1.0, math.pi - 0.21, math.pi - 0.19, math.pi])
def test_two_classes_at_a_known_angle(angle):
    """One embedding, its own prototype at ``angle`` and another at a right angle to it."""
    embedding = torch.tensor([[2.0, 0.0, 0.0]], dtype=torch.float64)
    own = [math.cos(angle), math.sin(angle), 0.0]
    weight = torch.tensor([own, [0.0, 0.0, 3.0]], dtype=torch.float64)
    label = torch.tensor([0])
    hard = math.cos(angle + 0.2)
    if angle >= math.pi - 0.2:
        hard = math.cos(angle) - 0.2 * math.sin(0.2)
    loss = aam_softmax(embedding, weight, label, scale=8.0, margin=0.2)
    assert float(loss) == pytest.approx(math.log1p(math.exp(-8.0 * hard)), abs=1e-9)
    additive = aam_softmax(embedding, weight, label, scale=8.0, margin=0.2, angular=False)
    expected = math.log1p(math.exp(-8.0 * (math.cos(angle) - 0.2)))
    assert float(additive) == pytest.approx(expected, abs=1e-9)


def test_the_loss_grows_with_the_angle_everywhere():
    angles = torch.linspace(0.0, math.pi, 500, dtype=torch.float64)
    embeddings = torch.stack([angles.cos(), angles.sin()], 1)
    weight = torch.tensor([[1.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    losses = aam_softmax(embeddings, weight, torch.zeros(500, dtype=torch.int64), **DEFAULTS)
    assert (losses.diff() > 0).all()


@pytest.mark.parametrize("margin", [0.2, 0.5])
def test_equals_the_one_of_speechbrain(margin):
    losses_module = speechbrain_part("nnet.losses")
    embeddings, weight, labels = draw(3, batch=40, classes=20, dtype=torch.float32)
    weight[labels[:10]] = -embeddings[:10]  # angles near pi
    cosines = functional.normalize(embeddings) @ functional.normalize(weight).t()
    theirs = losses_module.LogSoftmaxWrapper(losses_module.AdditiveAngularMargin(margin, 30.0))
    expected = float(theirs(cosines.unsqueeze(1), labels.unsqueeze(1)))  # a mean
    losses = aam_softmax(embeddings, weight, labels, scale=30.0, margin=margin)
    assert float(losses.mean()) == pytest.approx(expected, rel=2e-5)


def test_without_margin_it_is_the_softmax_over_cosines():
    embeddings, weight, labels = draw(0)
    cosines = functional.normalize(embeddings) @ functional.normalize(weight).t()
    expected = functional.cross_entropy(30.0 * cosines, labels, reduction="none")
    for angular in (True, False):
        losses = aam_softmax(embeddings, weight, labels, scale=30.0, margin=0.0, angular=angular)
        torch.testing.assert_close(losses, expected, rtol=1e-12, atol=1e-12)


def test_equal_sub_centres_are_one():
    embeddings, weight, labels = draw(1)
    three = weight.repeat_interleave(3, 0)
    torch.testing.assert_close(
        aam_softmax(embeddings, three, labels, sub_centres=3, **DEFAULTS),
        aam_softmax(embeddings, weight, labels, **DEFAULTS),
    )


@pytest.mark.parametrize("sub_centres", [1, 2])
@pytest.mark.parametrize("inter_top_k", [0, 2])
@pytest.mark.parametrize("angular", [True, False])
def test_gradients(sub_centres, inter_top_k, angular):
    embeddings, weight, labels = draw(5, classes=6, sub_centres=sub_centres)
    embeddings.requires_grad_()
    weight.requires_grad_()

    def loss(e, w):
        options = {"sub_centres": sub_centres, "inter_top_k": inter_top_k, "inter_margin": 0.1}
        return aam_softmax(
            e, w, labels, scale=5.0, margin=0.2, angular=angular, class_chunk=4, **options
        )

    assert torch.autograd.gradcheck(loss, (embeddings, weight))
    assert torch.autograd.gradcheck(lambda e: loss(e, weight.detach()), (embeddings,))
    assert torch.autograd.gradcheck(lambda w: loss(embeddings.detach(), w), (weight,))


def test_the_checks_of_torch_pass():
    embeddings, weight, labels = draw(0, sub_centres=2, dtype=torch.float32)
    margins = torch.tensor([0.2, 0.1], dtype=torch.float64)
    inputs = (embeddings.requires_grad_(), weight.requires_grad_(), labels, margins)
    results = torch.library.opcheck(ops._forward, (*inputs, 30.0, True, 2, 2, 4, True))
    assert set(results.values()) == {"SUCCESS"}


def test_compiles_as_one_graph_with_a_changing_margin():
    embeddings, weight, labels = draw(0, dtype=torch.float32)
    weight.requires_grad_()

    def loss(margin):
        return aam_softmax(2.0 * embeddings, weight, labels, scale=30.0, margin=margin).sum()

    torch._dynamo.reset()
    graphs = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(loss, fullgraph=True, backend=graphs)
    for step in range(6):
        margin = 0.01 + 0.03 * step
        weight.grad = None
        compiled(margin).backward()
        ours, weight.grad = weight.grad, None
        loss(margin).backward()
        torch.testing.assert_close(ours, weight.grad)
    assert graphs.frame_count <= 2


def run(threads, seed, **options):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        embeddings, weight, labels = draw(
            seed, batch=13, classes=333, size=50, sub_centres=options.get("sub_centres", 1)
        )
        embeddings, weight = embeddings.float().requires_grad_(), weight.float().requires_grad_()
        losses = aam_softmax(embeddings, weight, labels, **DEFAULTS, **options)
        losses.sum().backward()
        return losses.detach(), embeddings.grad, weight.grad
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    "options", [{}, {"sub_centres": 3, "class_chunk": 101}, {"inter_top_k": 5, "inter_margin": 0.1}]
)
def test_bits_do_not_depend_on_runs_or_threads(options):
    first = run(1, 0, **options)
    for threads in (1, 2, 3, 4):
        for ours, expected in zip(run(threads, 0, **options), first, strict=True):
            assert torch.equal(ours, expected)


def test_float32_under_autocast_and_for_half_precision():
    embeddings, weight, labels = draw(2, dtype=torch.float32)
    exact = aam_softmax(embeddings, weight, labels, **DEFAULTS)
    with torch.autocast("cpu", torch.bfloat16):
        losses = aam_softmax(embeddings, weight, labels, **DEFAULTS)
    assert losses.dtype is torch.float32 and torch.equal(losses, exact)
    low, prototypes = embeddings.bfloat16().requires_grad_(), weight.bfloat16().requires_grad_()
    losses = aam_softmax(low, prototypes, labels, **DEFAULTS)
    assert losses.dtype is torch.float32
    torch.testing.assert_close(
        losses, aam_softmax(low.float(), prototypes.float(), labels, **DEFAULTS)
    )
    losses.sum().backward()
    assert low.grad.dtype is prototypes.grad.dtype is torch.bfloat16


def test_zero_vectors_have_a_loss_and_no_gradient():
    embeddings, weight, labels = draw(4)
    embeddings[0] = 0.0
    weight[labels[1]] = 0.0
    embeddings.requires_grad_()
    weight.requires_grad_()
    losses = aam_softmax(embeddings, weight, labels, **DEFAULTS)
    expected = reference(embeddings.detach(), weight.detach(), labels, **DEFAULTS)
    torch.testing.assert_close(losses, expected)
    losses.sum().backward()
    assert embeddings.grad[0].abs().sum() == 0 and weight.grad[labels[1]].abs().sum() == 0
    assert torch.isfinite(embeddings.grad).all() and torch.isfinite(weight.grad).all()


def test_an_embedding_on_its_prototype_has_a_finite_gradient():
    weight = torch.eye(3)
    embeddings = (2.0 * torch.eye(3)).requires_grad_()
    losses = aam_softmax(embeddings, weight, torch.arange(3), scale=64.0, margin=0.3)
    losses.sum().backward()
    assert torch.isfinite(embeddings.grad).all()


@pytest.mark.parametrize("wrong", [-1, 7, -100])
def test_a_label_out_of_range_is_named_or_a_nan_without_gradient(wrong):
    embeddings, weight, labels = draw(0)
    labels[3] = wrong
    with pytest.raises(DataError, match=rf"label {wrong} of item 3 is not among the 7 classes"):
        aam_softmax(embeddings, weight, labels, **DEFAULTS)
    embeddings.requires_grad_()
    losses = aam_softmax(embeddings, weight, labels, check=False, **DEFAULTS)
    assert losses.isnan().tolist() == [False, False, False, True, False]
    losses.nansum().backward()
    assert embeddings.grad[3].abs().sum() == 0 and embeddings.grad[2].abs().sum() > 0


def test_shapes_that_do_not_fit_are_refused():
    embeddings, weight, labels = draw(0)
    for arguments, message in (
        ((embeddings[:, :5], weight, labels), r"embeddings \(5, 5\) and prototypes \(7, 6\)"),
        ((embeddings, weight, labels[:4]), "one for each of 5 embeddings"),
        ((embeddings, weight, labels.float()), "must be int64"),
    ):
        with pytest.raises(DataError, match=message):
            aam_softmax(*arguments, **DEFAULTS)
    with pytest.raises(DataError, match="7 prototypes cannot be shared out"):
        aam_softmax(embeddings, weight, labels, sub_centres=2, **DEFAULTS)


def test_recipes_get_it_by_name():
    embeddings, weight, labels = draw(0)
    loss = load_loss("xvector.aam_softmax")
    assert torch.equal(
        loss(embeddings, weight, labels, **DEFAULTS),
        aam_softmax(embeddings, weight, labels, **DEFAULTS),
    )
    assert loss.selected_kernel("cpu").path == "torch"
