"""Evaluation on several ranks: every sample counts once, whichever rank has it."""

from __future__ import annotations

from pathlib import Path

import pytest
from rank_tasks import evaluate

from voicehub.testing.ranks import run_on_ranks


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
@pytest.mark.parametrize("size", [1, 7, 8])
def test_metrics_are_those_of_one_process(size: int, strategy: str, tmp_path: Path) -> None:
    """A single batch leaves the second rank without any; 7 samples end in a smaller batch."""
    wanted, predicted = evaluate(tmp_path / "alone", size, {})
    found = run_on_ranks(2, evaluate, tmp_path / "ranks", size, {"strategy": strategy})
    assert wanted["eval_samples"] == wanted["eval_rows"] == size
    for metrics, (shape, total) in found:
        assert metrics == pytest.approx(wanted, rel=1e-12)
        assert (shape, total) == (predicted[0], pytest.approx(predicted[1], rel=1e-9))
    assert found[0] == found[1]
