"""The throughput benchmark compares equal memory and equal recordings."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from speechbrain_speakers import TRAIN_SPEAKERS, error_rates, speechbrain_dataset
from xvector_throughput import matched_batch_size, measure


class FakeBench:
    """Allocates so many megabytes a recording; capped batches are three times as fast."""

    cap_seconds = 40.0

    def longest_seconds(self) -> float:
        return 4.0

    def recordings(self) -> int:
        return 120

    def voicehub(self, batch_size: int | None) -> float:
        torch.empty((batch_size or 17) * 250_000)
        return 3.0 if batch_size else 1.0

    def speechbrain(self, batch_size: int | None) -> float:
        torch.empty((batch_size or 5) * 250_000)
        return 4.0 if batch_size else 2.0


def test_the_fixed_size_is_the_largest_that_needs_no_more_memory() -> None:
    bench: Any = FakeBench()
    assert matched_batch_size(bench, 17_500_000) == (17, 17_000_000)
    assert matched_batch_size(bench, 500_000)[0] == 1


def test_figures_are_ratios_to_the_capped_batches() -> None:
    bench: Any = FakeBench()
    found = measure(bench, rounds=2)
    ways = found["ways"]
    assert found["batch_size"] == 17
    assert {name: way["ours_faster_by"] for name, way in ways.items()} == {
        "voicehub, bucketed": 1.0,
        "voicehub, fixed": 3.0,
        "speechbrain, fixed": 4.0,
        "speechbrain, dynamic": 2.0,
    }
    assert ways["voicehub, bucketed"]["recordings_per_second"] == pytest.approx(120)
    assert ways["speechbrain, dynamic"]["peak_mb"] == pytest.approx(5)


def test_speechbrain_is_given_our_items_with_draws_of_their_own_for_every_epoch() -> None:
    asked = []

    class Items:
        planning_durations = (1.0, 2.0)

        def __len__(self) -> int:
            return 2

        def get_item(self, index: int, key: Any) -> Any:
            asked.append((index, key.seed, key.epoch))
            rows = torch.full((3, 2), float(index))
            return SimpleNamespace(prepared=SimpleNamespace(rows=rows), label=10 + index)

    items: Any = Items()
    data = speechbrain_dataset(items, seed=7)
    first, _, again = data[1], data[0], data[1]
    assert torch.equal(first["features"], torch.ones(3, 2)) and again["label"].tolist() == [11]
    assert asked == [(1, 7, 0), (0, 7, 0), (1, 7, 1)]


def test_error_rates_by_who_was_trained_on() -> None:
    speakers = [name for name in (*TRAIN_SPEAKERS, "lucas", "yweweler") for _ in range(3)]
    embeddings = torch.eye(6).repeat_interleave(3, 0)
    embeddings[12:] = 1.0  # the two new voices cannot be told apart
    found = error_rates(embeddings.numpy(), speakers)
    assert found["eer_seen"] == 0.0 and found["eer_unseen"] == 0.5 and 0 < found["eer_all"] < 0.5
