"""Named objectives equal their definition, and never bend shapes."""

from __future__ import annotations

import pytest
import torch

from voicehub.adapters.fallbacks import (
    causal_cross_entropy,
    classification,
    cross_entropy,
    fallback_objective,
    masked_regression,
)
from voicehub.specs.phase import TrainingPhaseSpec


def test_causal_cross_entropy_predicts_the_next_label():
    logits = torch.randn(2, 5, 7, dtype=torch.float32)
    labels = torch.randint(0, 7, (2, 5))
    labels[0, 3:] = -100
    loss, count = causal_cross_entropy(logits, labels)
    logp = logits.log_softmax(-1)
    terms = [
        -logp[b, t, labels[b, t + 1]]
        for b in range(2)
        for t in range(4)
        if labels[b, t + 1] != -100
    ]
    assert count == len(terms)
    torch.testing.assert_close(loss, torch.stack(terms).mean())


def test_cross_entropy_and_classification_at_equal_positions():
    logits, labels = torch.randn(3, 4), torch.tensor([1, -100, 3])
    logp = logits.log_softmax(-1)
    expected = -(logp[0, 1] + logp[2, 3]) / 2
    for objective in (cross_entropy, classification):
        loss, count = objective(logits, labels)
        torch.testing.assert_close(loss, expected)
        assert count == 2


@pytest.mark.parametrize("distance", ["mse", "l1", "smooth_l1"])
def test_regression_is_the_mean_over_kept_elements(distance):
    predictions, targets = torch.randn(2, 3, 4), torch.randn(2, 3, 4)
    mask = torch.tensor([[True, True, False], [True, False, False]])
    loss, count = masked_regression(predictions, targets, mask, distance=distance)
    difference = (predictions - targets)[mask]
    expected = {
        "mse": difference.pow(2),
        "l1": difference.abs(),
        "smooth_l1": torch.where(
            difference.abs() < 1, 0.5 * difference.pow(2), difference.abs() - 0.5
        ),
    }[distance].mean()
    torch.testing.assert_close(loss, expected)
    assert count == 12
    unmasked, everything = masked_regression(predictions, targets, None, distance=distance)
    assert everything == 24
    full, _ = masked_regression(predictions, targets, torch.ones(2, 3, 4), distance=distance)
    torch.testing.assert_close(unmasked, full)


def test_padding_does_not_change_the_loss():
    predictions, targets = torch.randn(2, 3), torch.randn(2, 3)
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]])
    loss, _ = masked_regression(predictions, targets, mask)
    predictions[0, 2], targets[0, 2] = 1e6, -1e6
    garbage, _ = masked_regression(predictions, targets, mask)
    assert torch.equal(loss, garbage)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: causal_cross_entropy(torch.zeros(2, 5, 7), torch.zeros(2, 4).long()),
            "not silently truncate",
        ),
        (
            lambda: causal_cross_entropy(torch.zeros(2, 1, 7), torch.zeros(2, 1).long()),
            "length >= 2",
        ),
        (lambda: cross_entropy(torch.zeros(2, 7), torch.zeros(2)), "class indices"),
        (
            lambda: cross_entropy(torch.zeros(2, 7), torch.full((2,), -100)),
            "No item of the batch is supervised",
        ),
        (
            lambda: classification(torch.zeros(2, 2, 2, 7), torch.zeros(2, 2, 2).long()),
            "classification needs",
        ),
        (lambda: masked_regression(torch.zeros(2, 3), torch.zeros(2, 1), None), "broadcasting"),
        (
            lambda: masked_regression(torch.zeros(2, 3), torch.zeros(2, 3), torch.ones(3)),
            "leading dimensions",
        ),
        (
            lambda: masked_regression(torch.zeros(2), torch.zeros(2), torch.zeros(2)),
            "No item",
        ),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def bound(name, inputs, **fields):
    phase = TrainingPhaseSpec("main", fallback_objective=name, **fields)
    return fallback_objective(phase, inputs, regression_loss="mse")


def test_objectives_are_bound_by_name_to_a_batch():
    labels = torch.randn(2, 3)
    objective = bound("regression_loss", {"labels": labels, "mel_mask": torch.ones(2, 3)})
    loss, count = objective({"predictions": labels + 1})
    assert loss.item() == pytest.approx(1.0)
    assert count == 6
    assert bound(None, {}) is None


def test_several_masks_are_ambiguous():
    labels = torch.zeros(2)
    inputs = {"labels": labels, "mel_mask": torch.ones(2), "labels_mask": torch.ones(2)}
    with pytest.raises(ValueError, match="mel_mask"):
        bound("regression_loss", inputs)(labels)


def test_missing_labels_or_predictions_are_named():
    with pytest.raises(ValueError, match="none of the labels"):
        bound("cross_entropy", {"x": 1})(torch.zeros(2, 3))
    with pytest.raises(ValueError, match="none of the predictions"):
        bound("cross_entropy", {"labels": torch.zeros(2)})({"odd": 1})
