"""The loss against an enumeration of all alignments, and what it refuses."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from voicehub.errors import DataError
from voicehub_asr_ctc.losses import ctc_loss

BLANK = 0


def collapse(path):
    return tuple(k for k, _ in itertools.groupby(path) if k != BLANK)


def enumerated(logits, target):
    """Negative log-likelihood as the sum over every path, in float64."""
    scores = logits.double().log_softmax(-1).tolist()
    frames, tokens = len(scores), len(scores[0])
    total = sum(
        math.exp(sum(scores[t][k] for t, k in enumerate(path)))
        for path in itertools.product(range(tokens), repeat=frames)
        if collapse(path) == tuple(target)
    )
    return -math.log(total)


def padded(targets):
    width = max(1, *(len(target) for target in targets))
    return torch.tensor([list(t) + [-100] * (width - len(t)) for t in targets])


CASES = [((1,), 1), ((1, 2), 3), ((1, 1), 3), ((2, 2, 1), 5), ((), 4), ((1, 2, 1), 6)]


@pytest.mark.parametrize(("target", "frames"), CASES)
def test_equals_the_sum_over_all_alignments(target, frames):
    generator = torch.Generator().manual_seed(frames)
    logits = torch.randn(1, frames, 3, generator=generator, dtype=torch.float64)
    result = ctc_loss(logits, [frames], padded([target]), [len(target)], blank=BLANK)
    expected = enumerated(logits[0], target) / max(1, len(target))
    assert float(result.loss) == pytest.approx(expected, rel=1e-9)


def test_is_the_mean_over_utterances_whatever_lies_in_the_padding():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(len(CASES), 9, 3, generator=generator, dtype=torch.float64)
    targets = [target for target, _ in CASES]
    frames = [frames for _, frames in CASES]
    alone = [
        enumerated(logits[i, :n], target) / max(1, len(target))
        for i, (target, n) in enumerate(CASES)
    ]
    labels = padded(targets)
    counts = [len(target) for target in targets]
    result = ctc_loss(logits, frames, labels, counts, blank=BLANK)
    assert result.num_items == len(CASES)
    assert float(result.loss) == pytest.approx(sum(alone) / len(alone), rel=1e-9)
    garbage = logits.clone()
    for i, n in enumerate(frames):
        garbage[i, n:] = 1e4
    labels[labels == -100] = 2
    again = ctc_loss(garbage, frames, labels, counts, blank=BLANK)
    assert float(again.loss) == float(result.loss)


def test_gradients_are_finite_and_end_with_the_utterance():
    logits = torch.zeros(2, 6, 4, requires_grad=True)
    ctc_loss(logits, [6, 3], padded([(1, 2), (3,)]), [2, 1], blank=BLANK).loss.backward()
    assert torch.isfinite(logits.grad).all()
    assert logits.grad[1, 3:].abs().sum() == 0 and logits.grad[1, :3].abs().sum() > 0


def test_half_precision_is_computed_in_float32():
    logits = torch.randn(1, 50, 8, generator=torch.Generator().manual_seed(1))
    low = logits.bfloat16()
    result = ctc_loss(low, [50], padded([(1, 2, 3)]), [3], blank=BLANK)
    assert result.loss.dtype is torch.float32
    expected = ctc_loss(low.float(), [50], padded([(1, 2, 3)]), [3], blank=BLANK)
    assert float(result.loss) == float(expected.loss)


@pytest.mark.parametrize("target", [(1, 2, 1), (1, 1)])
def test_labels_that_cannot_be_aligned_are_refused_by_name(target):
    logits = torch.zeros(1, 2, 3)
    with pytest.raises(DataError, match="utterance 'clip-7': 2 frames cannot hold"):
        ctc_loss(logits, [2], padded([target]), [len(target)], blank=BLANK, ids=["clip-7"])


def test_or_left_out_and_told():
    logits = torch.randn(3, 4, 3, generator=torch.Generator().manual_seed(0))
    targets, frames = [(1, 2), (1, 1, 1), (2,)], [4, 4, 4]
    result = ctc_loss(
        logits, frames, padded(targets), [2, 3, 1], blank=BLANK, exclude_unalignable=True
    )
    kept = ctc_loss(logits[[0, 2]], [4, 4], padded([(1, 2), (2,)]), [2, 1], blank=BLANK)
    assert result.excluded == (1,) and result.num_items == 2
    assert float(result.loss) == float(kept.loss)
    none = ctc_loss(
        logits[1:2], [4], padded([(1, 1, 1)]), [3], blank=BLANK, exclude_unalignable=True
    )
    assert none.num_items == 0 and float(none.loss) == 0.0


@pytest.mark.parametrize(
    ("frames", "labels", "counts", "message"),
    [
        ([9], [[1]], [1], "9 valid frames, but the model gave 4"),
        ([4], [[0]], [1], "label 0 is the blank"),
        ([4], [[7]], [1], "outside the 3 tokens"),
        ([4], [[1]], [2], "2 labels announced, 1 given"),
        ([4, 4], [[1]], [1], "must be"),
    ],
)
def test_what_does_not_fit_is_refused(frames, labels, counts, message):
    with pytest.raises((DataError, ValueError), match=message):
        ctc_loss(torch.zeros(1, 4, 3), frames, torch.tensor(labels), counts, blank=BLANK)
