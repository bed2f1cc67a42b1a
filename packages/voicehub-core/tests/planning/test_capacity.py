"""What a machine has left, by its memory and by the control groups of a process."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from voicehub.planning import capacity
from voicehub.planning.capacity import available_memory, capacity_of

GIB = 2**30


def machine(root: Path, files: dict[str, str]) -> Path:
    given = {"proc/meminfo": f"MemTotal: 99 kB\nMemAvailable: {8 * GIB // 1024} kB\n", **files}
    for name, text in given.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_without_limits_it_is_what_the_machine_has(tmp_path: Path) -> None:
    assert available_memory(tmp_path) is None
    assert available_memory(machine(tmp_path, {})) == 8 * GIB
    unlimited = {
        "proc/self/cgroup": "0::/a\n",
        "sys/fs/cgroup/a/memory.max": "max\n",
        "sys/fs/cgroup/a/memory.current": "5\n",
    }
    assert available_memory(machine(tmp_path, unlimited)) == 8 * GIB


def test_the_tightest_group_around_it_counts(tmp_path: Path) -> None:
    base = "sys/fs/cgroup/slice"
    files = {
        "proc/self/cgroup": "0::/slice/job\n",
        f"{base}/job/memory.max": f"{6 * GIB}\n",
        f"{base}/job/memory.current": f"{1 * GIB}\n",
        f"{base}/memory.max": f"{4 * GIB}\n",
        f"{base}/memory.current": f"{2 * GIB}\n",
        # Files that were read are in the group's account, and are given back.
        f"{base}/memory.stat": f"anon 7\ninactive_file {GIB}\nactive_file 10\n",
    }
    assert available_memory(machine(tmp_path, files)) == 3 * GIB + 10


def test_groups_of_the_first_version_seen_from_inside_a_container(tmp_path: Path) -> None:
    base = "sys/fs/cgroup/memory"
    files = {
        "proc/self/cgroup": "5:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n0::/\n",
        f"{base}/memory.limit_in_bytes": f"{2 * GIB}\n",
        f"{base}/memory.usage_in_bytes": f"{GIB}\n",
        f"{base}/memory.stat": f"inactive_file 9\ntotal_inactive_file {GIB // 2}\n",
    }
    root = machine(tmp_path, files)
    assert available_memory(root) == GIB + GIB // 2
    (root / base / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert available_memory(root) == 8 * GIB


def test_processes_of_one_machine_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "available_memory", lambda: 9 * GIB)
    found = capacity_of("cpu", sharing=3)
    assert found is not None and found.free == 3 * GIB and found.bf16
    assert found.holds(2.7 * GIB) and not found.holds(2.8 * GIB)  # a tenth lies between blocks
    assert capacity_of("mps") is None


def test_of_a_card_what_this_process_has_reserved_is_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (5 * GIB, 16 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 2 * GIB)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    found = capacity_of("cuda:1")
    assert found == capacity.Capacity("Tesla T4", 7 * GIB, bf16=False)


def test_a_driver_that_does_not_tell_ends_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(device: torch.device) -> tuple[int, int]:
        raise RuntimeError("CUDA error: operation not supported")

    monkeypatch.setattr(torch.cuda, "mem_get_info", lost)
    assert capacity_of("cuda:0") is None
