"""The compiled CTC against its definition, over the whole range that logits can have."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from voicehub.errors import DataError
from voicehub.kernels import load_loss
from voicehub_asr_ctc.losses import _cpu, ctc_loss, reference
from voicehub_asr_ctc.losses.ops import ctc_negative_log_likelihood

pytestmark = pytest.mark.skipif(
    _cpu.LIBRARY.unavailable() is not None, reason=f"no compiled path: {_cpu.LIBRARY.unavailable()}"
)


def case(
    sizes: list[tuple[int, int]], tokens: int, scale: float = 1.0, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Logits float64, frame lengths, labels with repeats, label lengths; blank 0, padding wild."""
    torch.manual_seed(seed)
    frames, labels = (max(values) for values in zip(*sizes, strict=True))
    logits = torch.randn(len(sizes), max(1, frames), tokens, dtype=torch.float64) * scale
    target = (
        torch.randint(1, tokens, (len(sizes), labels)) if tokens > 1 else torch.zeros(1, 0).long()
    )
    for row, (_, length) in zip(target, sizes, strict=True):
        row[length:] = -999
    lengths = torch.tensor(sizes)
    return logits, lengths[:, 0], target, lengths[:, 1]


def found(
    arguments: tuple[Tensor, ...], dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    """Losses, and the gradient of their weighted sum, both float64."""
    logits = arguments[0].to(dtype).requires_grad_()
    losses = ctc_negative_log_likelihood(logits, *arguments[1:], blank=0, kernel="c")
    weights = torch.arange(1, len(losses) + 1, dtype=losses.dtype)
    finite = losses.isfinite()
    (gradient,) = torch.autograd.grad((losses * weights)[finite].sum(), logits)
    return losses.detach().double(), gradient.double()


def expected(arguments: tuple[Tensor, ...], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    logits, frames, labels, counts = arguments
    logits = logits.to(dtype).double()
    losses, gradient = [], torch.zeros_like(logits)
    for item, (n, m) in enumerate(zip(frames.tolist(), counts.tolist(), strict=True)):
        loss, table = reference.ctc(logits[item, :n].tolist(), labels[item, :m].tolist(), 0)
        losses.append(loss)
        if n:
            gradient[item, :n] = (item + 1) * torch.tensor(table, dtype=torch.float64)
    return torch.tensor(losses, dtype=torch.float64), gradient


SIZES = [(1, 0), (1, 1), (2, 1), (7, 3), (9, 9), (12, 5), (25, 8), (0, 0), (0, 1), (3, 4), (24, 1)]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-11), (torch.float32, 2e-6)])
@pytest.mark.parametrize("scale", [0.0, 1.0, 20.0, 1000.0])
@pytest.mark.parametrize("tokens", [2, 3, 40])
def test_it_equals_its_definition(
    dtype: torch.dtype, tolerance: float, scale: float, tokens: int
) -> None:
    arguments = case(SIZES, tokens, scale)
    losses, gradient = found(arguments, dtype)
    wanted, wanted_gradient = expected(arguments, dtype)
    torch.testing.assert_close(losses, wanted, rtol=max(tolerance, 1e-7), atol=1e-6)
    torch.testing.assert_close(gradient, wanted_gradient, rtol=0, atol=len(SIZES) * tolerance)


def test_paths_that_sums_of_probabilities_lose_are_found_by_logarithms() -> None:
    """Slow paths fall 1e-308 behind fast ones, which then pay for having arrived early."""
    arguments = case([(2600, 300)], 32, 3.0)
    losses, gradient = found(arguments)
    logits = arguments[0].requires_grad_()
    native = functional.ctc_loss(
        logits.log_softmax(-1).transpose(0, 1), *(arguments[i] for i in (2, 1, 3)), reduction="none"
    )
    assert losses.item() == pytest.approx(native.item(), rel=1e-12)
    assert (gradient - torch.autograd.grad(native.sum(), logits)[0]).abs().max() < 1e-9


def test_long_utterances_keep_their_gradient_in_single_precision() -> None:
    arguments = case([(3000, 200)], 32, 1.0)
    arguments = (arguments[0].float(), *arguments[1:])
    _, exact = found(arguments, torch.float64)
    _, single = found(arguments, torch.float32)
    assert (single - exact).abs().max() < 2e-6


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened(dtype: torch.dtype) -> None:
    arguments = case([(20, 5), (16, 7)], 11, 3.0)
    losses, gradient = found(arguments, dtype)
    wanted, wanted_gradient = expected(arguments, dtype)
    torch.testing.assert_close(losses, wanted, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(gradient, wanted_gradient, rtol=1e-2, atol=1e-3)


def test_any_strides_and_gradients_of_the_rows() -> None:
    arguments = case([(20, 5), (16, 7)], 11)
    plain = found(arguments)
    for order in ((1, 0, 2), (2, 1, 0), (0, 2, 1)):
        back = [order.index(axis) for axis in range(3)]
        turned = arguments[0].permute(order).contiguous().permute(back)
        for one, other in zip(found((turned, *arguments[1:])), plain, strict=True):
            assert torch.equal(one, other)


def test_it_is_equal_over_runs_threads_and_batches() -> None:
    arguments = case([(300, 40)] * 6, 400)
    threads, results = torch.get_num_threads(), []
    try:
        for number in (1, 2, 3, 2):
            torch.set_num_threads(number)
            results.append(found(arguments, torch.float32))
    finally:
        torch.set_num_threads(threads)
    for losses, gradient in results[1:]:
        assert torch.equal(losses, results[0][0]) and torch.equal(gradient, results[0][1])
    alone, _ = found(tuple(values[2:3] for values in arguments), torch.float32)
    assert torch.equal(alone, results[0][0][2:3])


def test_infinite_and_missing_logits_give_a_defined_value() -> None:
    logits, *targets = case([(6, 2)] * 4, 5)
    logits[0, :, 1:] = -math.inf  # only blanks: no alignment
    logits[1, 2, 4] = -math.inf
    logits[2, 3, 1] = math.nan
    logits[3, 1, 0] = math.inf
    losses, gradient = found((logits, *targets))
    assert losses[0] == math.inf and losses[1].isfinite() and losses[2:].isnan().all()
    assert (gradient[0] == 0).all() and gradient[1].isfinite().all()


@pytest.mark.parametrize(
    ("name", "value"),
    [("labels", 5), ("labels", -1), ("labels", 0), ("frames", 7), ("frames", -1), ("counts", 4),
     ("counts", -2)],
)  # fmt: skip
def test_wrong_labels_and_lengths_never_crash(name: str, value: int) -> None:
    logits, frames, labels, counts = case([(6, 3), (6, 3)], 5)
    if name == "labels":
        labels[1, 1] = value
    else:
        (frames if name == "frames" else counts)[1] = value
    arguments = (logits, frames, labels, counts)
    with pytest.raises(DataError, match="item 1 has"):
        ctc_negative_log_likelihood(*arguments, blank=0, check=True)
    logits.requires_grad_()
    losses = ctc_negative_log_likelihood(*arguments, blank=0, check=False)
    assert losses[0].isfinite() and losses[1] == math.inf
    (gradient,) = torch.autograd.grad(losses[0], logits)
    assert (gradient[1] == 0).all()


def test_tensors_of_the_wrong_kind_are_refused() -> None:
    logits, frames, labels, counts = case([(6, 3), (6, 3)], 5)
    with pytest.raises(DataError, match="blank among the tokens"):
        ctc_negative_log_likelihood(logits, frames, labels, counts, blank=5)
    with pytest.raises(DataError, match="frame_lengths must be int64"):
        ctc_negative_log_likelihood(logits, frames.int(), labels, counts, blank=0)
    with pytest.raises(DataError, match="labels must be int64"):
        ctc_negative_log_likelihood(logits, frames, labels[0], counts, blank=0)


def test_both_paths_of_the_loss_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, frames, labels, counts = case([(20, 5), (16, 7), (5, 0)], 11, 3.0)
    found = {}
    for path in ("c", "native"):
        monkeypatch.setenv("VOICEHUB_KERNELS", f"asr_ctc.ctc={path}")
        assert load_loss("asr_ctc.ctc").selected_kernel().path == path
        values = logits.clone().requires_grad_()
        loss = ctc_loss(values, frames.tolist(), labels, counts.tolist(), blank=0).loss
        found[path] = loss.item(), torch.autograd.grad(loss, values)[0]
    assert found["c"][0] == pytest.approx(found["native"][0], rel=1e-12)
    torch.testing.assert_close(found["c"][1], found["native"][1], rtol=0, atol=1e-12)
