"""Figures of durations and alignments on cases counted by hand."""

from __future__ import annotations

import math

import pytest
import torch

from voicehub.errors import DataError
from voicehub_vits.losses import maximum_path
from voicehub_vits.metrics import DurationErrors, alignment_figures, duration_errors
from voicehub_vits.metrics.alignment import position_frames


def test_duration_errors_are_counted_by_position_and_by_utterance() -> None:
    predicted = torch.tensor([[2.0, 3.5, 1.0], [4.0, 9.0, math.nan]])
    aligned = torch.tensor([[1, 4, 1], [6, 6, 50]])
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    found = duration_errors(predicted, aligned, mask)
    assert found == DurationErrors(5, 18.0, 1 + 0.5 + 2 + 3, 0.5 + 1)
    assert found.frames_per_position == 6.5 / 5
    assert found.length_error == 1.5 / 18


def test_pooled_errors_are_those_of_the_whole_set() -> None:
    torch.manual_seed(0)
    predicted, aligned = torch.rand(6, 4) * 9, torch.randint(1, 9, (6, 4))
    mask = torch.rand(6, 4) < 0.7
    parts = [
        duration_errors(predicted[i : i + 2], aligned[i : i + 2], mask[i : i + 2])
        for i in (0, 2, 4)
    ]
    pooled, whole = sum(parts, DurationErrors()), duration_errors(predicted, aligned, mask)
    assert pooled.positions == whole.positions
    assert pooled.frames_per_position == pytest.approx(whole.frames_per_position, rel=1e-12)
    assert pooled.length_error == pytest.approx(whole.length_error, rel=1e-12)
    assert math.isnan(DurationErrors().length_error)
    assert math.isnan(DurationErrors().frames_per_position)


def test_an_even_path_lies_on_the_diagonal() -> None:
    index = torch.tensor([[0, 0, 1, 1, 2, 2, -1, -1]])
    found = alignment_figures(index, torch.tensor([3]))
    assert found.frames_per_position == 2.0
    assert found.single_share == 0.0
    assert found.longest_share == pytest.approx(1 / 3)
    assert found.off_diagonal == pytest.approx(1 / 12)  # a quarter of a step from each centre


def test_a_collapsed_path_shows() -> None:
    index = torch.tensor([[0, 1, 2, 3, 4] + [5] * 95])
    found = alignment_figures(index, torch.tensor([6]))
    assert found.single_share == pytest.approx(5 / 6)
    assert found.longest_share == pytest.approx(0.95)
    assert found.off_diagonal > 0.35


def test_frames_of_positions_add_up() -> None:
    torch.manual_seed(1)
    text, frames = torch.tensor([5, 3, 1]), torch.tensor([12, 12, 4])
    index = maximum_path(torch.randn(3, 5, 12), text, frames)
    counts = position_frames(index, 5)
    assert counts.sum(1).tolist() == frames.tolist()
    for row, length in zip(counts, text.tolist(), strict=True):
        assert (row[:length] >= 1).all() and (row[length:] == 0).all()


def test_tensors_that_do_not_fit_are_refused() -> None:
    with pytest.raises(DataError, match="three tensors"):
        duration_errors(torch.zeros(2, 3), torch.zeros(2, 3), torch.zeros(2, 4))
    with pytest.raises(DataError, match="lengths"):
        alignment_figures(torch.zeros(2, 3, dtype=torch.long), torch.ones(3))
    with pytest.raises(DataError, match="has no path"):
        alignment_figures(torch.full((1, 3), -1), torch.ones(1, dtype=torch.long))
