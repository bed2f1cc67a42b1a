"""Both loops of the VITS benchmark do the same work; how fast they are is not judged here."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

pytest.importorskip("voicehub_vits")
if importlib.util.find_spec("monotonic_alignment_search") is None:
    pytest.skip("`nox -s bench` installs monotonic-alignment-search", allow_module_level=True)

import vits_step


def test_both_loops_find_the_same_losses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vits_step, "BATCH", 2)
    monkeypatch.setattr(vits_step, "WARM_UP", 1)
    threads = torch.get_num_threads()
    try:
        found = vits_step.measure(1, tmp_path, dropout=False)
    finally:
        torch.set_num_threads(threads)
    assert len(found.losses["ours"]) == len(found.losses["plain"]) == 4
    assert found.losses["ours"] == pytest.approx(found.losses["plain"], rel=2e-3)
    assert found.losses["ours"][:2] == pytest.approx(found.losses["plain"][:2], rel=1e-5)
    for loop in ("ours", "plain"):
        assert set(found.parts[loop][0]) == set(vits_step.PARTS)
        assert sum(found.parts[loop][0].values()) <= getattr(found, loop)[0]
    assert "generator backward" in vits_step.table(found)


def test_time_inside_a_part_is_counted_once() -> None:
    clock = vits_step.Clock()
    with clock.part("outer"):
        clock.timed("inner", lambda: sum(range(200_000)))()
    assert clock.seconds["inner"] > clock.seconds["outer"] >= 0.0
