"""Each term and its gradients against float64 loops written from the papers, not from the code."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from voicehub.errors import DataError, PluginError
from voicehub.kernels import load_loss
from voicehub_vits import losses

Array = NDArray[np.float64]


@dataclass
class Term:
    """A loss as tensors to scalar, and the same in NumPy with hand-derived gradients.

    Attributes:
        loss: scalar of the tensors that have a gradient.
        reference: value and one gradient a tensor.
        shapes: of those tensors.
    """

    loss: Callable[..., Tensor]
    reference: Callable[..., tuple[float, list[Array]]]
    shapes: list[tuple[int, ...]]


MASK = np.array([[[1.0, 1.0, 1.0, 1.0]], [[1.0, 0.5, 0.0, 0.0]]])


def kl_reference(*values: Array) -> tuple[float, list[Array]]:
    total, gradients = 0.0, [np.zeros_like(value) for value in values]
    z_p, logs_q, m_p, logs_p = values
    for b, c, t in np.ndindex(z_p.shape):
        weight = MASK[b, 0, t] / MASK.sum()
        variance = math.exp(logs_p[b, c, t]) ** 2
        away = z_p[b, c, t] - m_p[b, c, t]
        total += weight * (logs_p[b, c, t] - logs_q[b, c, t] - 0.5 + away**2 / (2 * variance))
        parts = (away / variance, -1.0, -away / variance, 1.0 - away**2 / variance)
        for gradient, part in zip(gradients, parts, strict=True):
            gradient[b, c, t] = weight * part
    return total, gradients


def kl_loss(*values: Tensor) -> Tensor:
    total, count = losses.kl_divergence(*values, torch.from_numpy(MASK).to(values[0].dtype))
    return total / count


def discriminator_reference(*logits: Array) -> tuple[float, list[Array]]:
    total, gradients = 0.0, []
    for number, scores in enumerate(logits):
        target = 1.0 if number < len(logits) // 2 else 0.0
        total += float(np.mean([(score - target) ** 2 for score in scores.flat]))
        gradients.append(2 * (scores - target) / scores.size)
    return total, gradients


def generator_reference(*logits: Array) -> tuple[float, list[Array]]:
    total = sum(sum((1 - score) ** 2 for score in scores.flat) / scores.size for scores in logits)
    return float(total), [-2 * (1 - scores) / scores.size for scores in logits]


REAL = [np.random.default_rng(n).standard_normal(shape) for n, shape in enumerate([(2, 3), (4,)])]


def l1_reference(real: Array, generated: Array) -> tuple[float, Array]:
    distances = [abs(a - b) for a, b in zip(generated.flat, real.flat, strict=True)]
    return math.fsum(distances) / real.size, np.where(generated > real, 1.0, -1.0) / real.size


def matching_reference(*layers: Array) -> tuple[float, list[Array]]:
    parts = [l1_reference(real, layer) for real, layer in zip(REAL, layers, strict=True)]
    return 2.0 * sum(value for value, _ in parts), [2.0 * gradient for _, gradient in parts]


def matching_loss(*layers: Tensor) -> Tensor:
    real = [[torch.from_numpy(values).to(layers[0].dtype)] for values in REAL]
    return losses.feature_matching_loss(real, [[layer] for layer in layers])


def mel_reference(generated: Array) -> tuple[float, list[Array]]:
    value, gradient = l1_reference(REAL[0], generated)
    return value, [gradient]


FRAMES = np.array([[[3.0, 1.0, 2.0, 9.0]], [[1.0, 4.0, 0.0, 0.0]]])


def duration_reference(predicted: Array) -> tuple[float, list[Array]]:
    total, gradient = 0.0, np.zeros_like(predicted)
    for b, _, t in np.ndindex(predicted.shape):
        if MASK[b, 0, t]:
            away = predicted[b, 0, t] - math.log(FRAMES[b, 0, t])
            total += MASK[b, 0, t] * away * away / MASK.sum()
            gradient[b, 0, t] = 2 * MASK[b, 0, t] * away / MASK.sum()
    return total, [gradient]


def duration_loss(predicted: Tensor) -> Tensor:
    frames, mask = (torch.from_numpy(values).to(predicted.dtype) for values in (FRAMES, MASK))
    total, count = losses.deterministic_duration_loss(predicted, frames, mask)
    return total / count


def likelihood_reference(nll: Array) -> tuple[float, list[Array]]:
    return float(nll[0] + nll[1]) / 5.5, [np.full(2, 1 / 5.5)]


def likelihood_loss(nll: Tensor) -> Tensor:
    total, count = losses.stochastic_duration_loss(nll, torch.from_numpy(MASK).to(nll.dtype))
    return total / count


def discriminator(*logits: Tensor) -> Tensor:
    return losses.discriminator_loss(logits[:2], logits[2:]).loss


def generator(*logits: Tensor) -> Tensor:
    return losses.generator_loss(logits).loss


def mel(generated: Tensor) -> Tensor:
    return losses.mel_l1(generated, torch.from_numpy(REAL[0]).to(generated.dtype))


TERMS = {
    "kl": Term(kl_loss, kl_reference, [(2, 3, 4)] * 4),
    "discriminator": Term(discriminator, discriminator_reference, [(2, 5), (2, 7)] * 2),
    "generator": Term(generator, generator_reference, [(2, 5), (2, 3, 2)]),
    "feature matching": Term(matching_loss, matching_reference, [(2, 3), (4,)]),
    "mel": Term(mel, mel_reference, [(2, 3)]),
    "deterministic duration": Term(duration_loss, duration_reference, [(2, 1, 4)]),
    "stochastic duration": Term(likelihood_loss, likelihood_reference, [(2,)]),
}


@pytest.fixture(params=TERMS)
def term(request: pytest.FixtureRequest) -> Term:
    return TERMS[request.param]


def drawn(term: Term, dtype: torch.dtype) -> list[Tensor]:
    torch.manual_seed(3)
    values = [torch.randn(shape, dtype=torch.float64) for shape in term.shapes]
    return [value.to(dtype).requires_grad_() for value in values]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
def test_value_and_gradients(term: Term, dtype: torch.dtype, tolerance: float) -> None:
    inputs = drawn(term, dtype)
    value, gradients = term.reference(*[x.detach().double().numpy() for x in inputs])
    loss = term.loss(*inputs)
    assert loss.dtype == dtype
    assert loss.item() == pytest.approx(value, rel=tolerance)
    for found, expected in zip(torch.autograd.grad(loss, inputs), gradients, strict=True):
        torch.testing.assert_close(
            found.double(), torch.from_numpy(expected), rtol=tolerance, atol=tolerance * 1e-2
        )


def test_gradients_by_differences(term: Term) -> None:
    assert torch.autograd.gradcheck(term.loss, drawn(term, torch.float64))


def test_half_precision_is_summed_in_float32(term: Term) -> None:
    inputs = drawn(term, torch.bfloat16)
    loss = term.loss(*inputs)
    assert loss.dtype == torch.float32
    value, _ = term.reference(*[x.detach().double().numpy() for x in inputs])
    assert loss.item() == pytest.approx(value, rel=2e-3)
    assert {g.dtype for g in torch.autograd.grad(loss, inputs)} == {torch.bfloat16}


def test_it_compiles_without_a_graph_break(term: Term) -> None:
    inputs = drawn(term, torch.float64)
    compiled = torch.compile(term.loss, fullgraph=True, backend="eager")
    assert compiled(*inputs).item() == pytest.approx(term.loss(*inputs).item(), rel=1e-12)


@pytest.mark.parametrize("garbage", [math.nan, math.inf, 1e30])
def test_padding_may_hold_anything(garbage: float) -> None:
    for term in (TERMS["kl"], TERMS["deterministic duration"]):
        clean, inputs = drawn(term, torch.float32), drawn(term, torch.float32)
        outside = torch.from_numpy(MASK == 0)
        inputs = [x.detach().masked_fill(outside, garbage).requires_grad_() for x in inputs]
        assert term.loss(*inputs).item() == term.loss(*clean).item()
        for found in torch.autograd.grad(term.loss(*inputs), inputs):
            assert found.isfinite().all()
            assert (found.masked_select(outside) == 0).all()


def test_the_divergence_of_equal_gaussians_is_zero_on_average() -> None:
    torch.manual_seed(0)
    mean, log_deviation = torch.randn(4, 8, 2000), 0.3 * torch.randn(4, 8, 2000)
    sample = mean + torch.randn_like(mean) * log_deviation.exp()
    mask = torch.ones(4, 1, 2000, dtype=torch.bool)
    total, count = losses.kl_divergence(sample, log_deviation, mean, log_deviation, mask)
    assert count.item() == 8000
    assert abs(total.item() / count.item()) < 0.05


def test_an_undecided_discriminator_loses_one_half() -> None:
    half = [torch.full((2, 4), 0.5)] * 6
    found = losses.discriminator_loss(half, half)
    assert found.loss.item() == pytest.approx(3.0)
    assert found.real.tolist() == found.generated.tolist() == [0.25] * 6
    assert losses.generator_loss(half).generated.tolist() == [0.25] * 6


def test_recorded_audio_gets_no_gradient() -> None:
    real, generated = torch.randn(2, 3, requires_grad=True), torch.randn(2, 3, requires_grad=True)
    loss = losses.feature_matching_loss([[real]], [[generated]]) + losses.mel_l1(generated, real)
    loss.backward()
    assert real.grad is None and generated.grad is not None


def test_tensors_that_do_not_belong_together_are_refused() -> None:
    a, b = torch.zeros(2, 3, 4), torch.zeros(2, 3, 5)
    with pytest.raises(DataError, match="kl_divergence: .*one shape"):
        losses.kl_divergence(a, a, b, a, torch.ones(2, 1, 4))
    with pytest.raises(DataError, match=r"\(batch, 1, frames\)"):
        losses.kl_divergence(a, a, a, a, torch.ones(2, 4))
    with pytest.raises(DataError, match="got 1 for real and 2"):
        losses.discriminator_loss([a], [a, a])
    with pytest.raises(DataError, match="generator_loss: .*got 0"):
        losses.generator_loss([])
    with pytest.raises(DataError, match=r"\[1\] per discriminator for real and \[2\]"):
        losses.feature_matching_loss([[a]], [[a, a]])
    with pytest.raises(DataError, match="layer 1 is"):
        losses.feature_matching_loss([[a, a]], [[a, b]])
    with pytest.raises(DataError, match="hop length and upsampling"):
        losses.mel_l1(a, b)
    with pytest.raises(DataError, match="stochastic_duration_loss"):
        losses.stochastic_duration_loss(torch.zeros(3), torch.ones(2, 1, 4))
    with pytest.raises(DataError, match="deterministic_duration_loss"):
        losses.deterministic_duration_loss(a, a, b)


def test_every_loss_is_fetched_by_name() -> None:
    assert load_loss("vits.kl").functions["kl_divergence"] is losses.kl_divergence
    assert load_loss("vits.adversarial").functions["generator"] is losses.generator_loss
    assert load_loss("vits.adversarial").functions["discriminator"] is losses.discriminator_loss
    assert load_loss("vits.duration").functions["stochastic"] is losses.stochastic_duration_loss
    assert load_loss("vits.mel")(torch.ones(1, 2), torch.zeros(1, 2)).item() == 1.0
    assert load_loss("vits.feature_matching")([[torch.ones(2)]], [[torch.zeros(2)]]).item() == 2.0
    with pytest.raises(PluginError, match="several functions"):
        load_loss("vits.adversarial")()
