"""By how much a process has grown."""

from __future__ import annotations

from pathlib import Path

import torch

from voicehub.planning.resident import ResidentGrowth

MIB = 2**20


def test_a_tensor_that_came_and_went_counts() -> None:
    growth = ResidentGrowth()
    size = 64 * MIB
    torch.empty(size, dtype=torch.uint8).fill_(1)
    most = growth.most()
    assert most is not None and size * 0.9 < most < size * 1.5
    later = ResidentGrowth().most()
    assert later is not None and later < size / 2  # each counts from its own beginning


def test_it_is_the_peak_beyond_what_was_held(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text("VmHWM:\t500 kB\nVmRSS:\t300 kB\n")
    growth = ResidentGrowth(tmp_path)
    assert (tmp_path / "clear_refs").read_text() == "5"
    status.write_text("VmHWM:\t750 kB\nVmRSS:\t400 kB\n")
    assert growth.most() == 450 * 1024


def test_a_system_that_does_not_tell(tmp_path: Path) -> None:
    assert ResidentGrowth(tmp_path / "none").most() is None
    (tmp_path / "status").write_text("Name: x\n")
    assert ResidentGrowth(tmp_path).most() is None
