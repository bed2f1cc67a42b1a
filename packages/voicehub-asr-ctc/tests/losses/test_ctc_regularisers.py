"""Label smoothing and consistency against their definitions, in values and gradients."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from voicehub.errors import DataError
from voicehub_asr_ctc.losses import ctc_loss
from voicehub_asr_ctc.losses.divergence import consistency, uniform_divergence

LENGTHS = torch.tensor([5, 3, 0, 1])


def logits(seed: int, scale: float = 1.0) -> Tensor:
    torch.manual_seed(seed)
    return torch.randn(4, 5, 7, dtype=torch.float64) * scale


def uniform_by_hand(values: Tensor) -> Tensor:
    """KL(uniform || p) of every valid frame, by its own formula."""
    uniform = torch.full((values.shape[-1],), 1.0 / values.shape[-1], dtype=torch.float64)
    found = []
    for item, frames in zip(values, LENGTHS.tolist(), strict=True):
        logs = item[:frames].log_softmax(-1)
        found.append((uniform * (uniform.log() - logs)).sum())
    return torch.stack(found)


def consistency_by_hand(one: Tensor, two: Tensor) -> Tensor:
    """Half of both divergences, the teacher detached."""
    found = []
    for own, other, frames in zip(one, two, LENGTHS.tolist(), strict=True):
        p, q = own[:frames].log_softmax(-1), other[:frames].log_softmax(-1)
        to_p = functional.kl_div(p, q.detach(), reduction="sum", log_target=True)
        to_q = functional.kl_div(q, p.detach(), reduction="sum", log_target=True)
        found.append(0.5 * (to_p + to_q))
    return torch.stack(found)


WEIGHTS = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)


@pytest.mark.parametrize("scale", [0.0, 1.0, 100.0])
def test_the_uniform_divergence_is_its_definition(scale: float) -> None:
    own, other = (logits(0, scale).requires_grad_() for _ in range(2))
    found, wanted = uniform_divergence(own, LENGTHS), uniform_by_hand(other)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    (found * WEIGHTS).sum().backward()
    (wanted * WEIGHTS).sum().backward()
    torch.testing.assert_close(own.grad, other.grad, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("scale", [0.0, 1.0, 100.0])
def test_consistency_is_its_definition(scale: float) -> None:
    pairs = [[logits(seed, scale).requires_grad_() for seed in (0, 1)] for _ in range(2)]
    found, wanted = consistency(*pairs[0], LENGTHS), consistency_by_hand(*pairs[1])
    torch.testing.assert_close(found, wanted, rtol=1e-11, atol=1e-12)
    (found * WEIGHTS).sum().backward()
    (wanted * WEIGHTS).sum().backward()
    for own, other in zip(*pairs, strict=True):
        torch.testing.assert_close(own.grad, other.grad, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_narrow_logits_are_widened_and_padding_has_no_influence(dtype: torch.dtype) -> None:
    one, two = logits(0).to(dtype), logits(1).to(dtype)
    for item, frames in enumerate(LENGTHS.tolist()):
        one[item, frames:], two[item, frames:] = math.nan, math.inf
    one.requires_grad_()
    smooth, apart = uniform_divergence(one, LENGTHS), consistency(one, two, LENGTHS)
    assert smooth.dtype == apart.dtype == torch.float32
    torch.testing.assert_close(smooth.double(), uniform_by_hand(one.double()), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        apart.double(), consistency_by_hand(one.double(), two.double()), rtol=1e-5, atol=1e-5
    )
    (smooth + apart).sum().backward()
    assert one.grad is not None and one.grad.isfinite().all() and one.grad.dtype == dtype


def test_tokens_that_are_impossible_in_both_views_agree() -> None:
    one, two = logits(0), logits(1)
    one[:, :, 2] = two[:, :, 2] = -math.inf
    rest = [0, 1, 3, 4, 5, 6]
    wanted = consistency(one[:, :, rest], two[:, :, rest], LENGTHS)
    torch.testing.assert_close(consistency(one, two, LENGTHS), wanted, rtol=1e-12, atol=0)


LABELS, COUNTS, FRAMES = torch.tensor([[1, 2], [3, -1], [1, -1]]), [2, 1, 1], [5, 3, 4]


def test_the_loss_mixes_them_by_label() -> None:
    one, two = logits(0)[:3], logits(1)[:3]
    both = torch.cat([one, two])
    options = {"blank": 0, "views": 2}
    plain = ctc_loss(both, FRAMES, LABELS, COUNTS, **options)
    alone = [ctc_loss(view, FRAMES, LABELS, COUNTS, blank=0).loss for view in (one, two)]
    assert float(plain.loss) == pytest.approx(float(sum(alone)) / 2, rel=1e-12)
    assert plain.num_items == 3 and plain.terms == {}
    found = ctc_loss(
        both, FRAMES, LABELS, COUNTS, **options, label_smoothing=0.1, consistency_weight=0.2
    )
    lengths, counts = torch.tensor(FRAMES), torch.tensor(COUNTS, dtype=torch.float64)
    smooth = sum((uniform_divergence(view, lengths) / counts).mean() / 2 for view in (one, two))
    apart = (consistency(one, two, lengths) / counts).mean()
    wanted = 0.9 * plain.loss + 0.1 * smooth + 0.2 * apart
    assert float(found.loss) == pytest.approx(float(wanted), rel=1e-12)
    assert found.num_items == 3 and set(found.terms) == {"ctc", "smoothing", "consistency"}
    assert float(found.terms["consistency"]) == pytest.approx(float(apart), rel=1e-12)


def test_what_has_no_alignment_is_left_out_of_both_views() -> None:
    both = torch.cat([logits(0)[:3], logits(1)[:3]])
    labels = torch.tensor([[1, 2], [3, 3], [1, -1]])
    found = ctc_loss(
        both,
        [5, 2, 4],
        labels,
        [2, 2, 1],
        blank=0,
        views=2,
        consistency_weight=0.2,
        exclude_unalignable=True,
    )
    kept = ctc_loss(
        both[[0, 2, 3, 5]], [5, 4], labels[[0, 2]], [2, 1], blank=0, views=2, consistency_weight=0.2
    )
    assert found.excluded == (1,) and found.num_items == 2
    assert float(found.loss) == float(kept.loss)


def test_views_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="two views of a batch, got 1"):
        ctc_loss(logits(0)[:3], FRAMES, LABELS, COUNTS, blank=0, consistency_weight=0.2)
    with pytest.raises(DataError, match="for each of 2 views"):
        ctc_loss(logits(0)[:3], FRAMES, LABELS, COUNTS, blank=0, views=2)
