"""How much memory a device has left for a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from voicehub.planning.cards import FRAGMENTATION

#: A memory limit of control groups from here on is none: the first version has no other word.
_NO_LIMIT = 2**60


@dataclass(frozen=True)
class Capacity:
    """What a process may still take.

    Attributes:
        device: as people call it.
        free: bytes for this process, with what it holds for tensors already.
        bf16: whether the device computes in bfloat16.
    """

    device: str
    free: int
    bf16: bool

    def holds(self, tensors: float) -> bool:
        """Whether so many bytes of tensors fit, with what an allocator leaves between blocks."""
        return tensors * (1 + FRAGMENTATION) <= self.free


def capacity_of(device: str, *, sharing: int = 1) -> Capacity | None:
    """Return what a device has left; None where it cannot be told.

    Args:
        device: ``cuda``, ``cuda:1`` or ``cpu``.
        sharing: processes of the run that share the memory of this machine, where it is the CPU.
    """
    if device.startswith("cuda"):
        try:
            return _of_card(torch.device(device))
        except RuntimeError:  # the driver does not tell: of no use, and no reason to end a run
            return None
    if device != "cpu":
        return None
    free = available_memory()
    return None if free is None else Capacity("this machine", free // sharing, bf16=True)


def _of_card(device: torch.device) -> Capacity:
    free, _ = torch.cuda.mem_get_info(device)
    free += torch.cuda.memory_reserved(device)  # held by this process already
    name = torch.cuda.get_device_name(device)
    bf16 = torch.cuda.get_device_capability(device) >= (8, 0)
    return Capacity(name, int(free), bf16)


def available_memory(root: Path = Path("/")) -> int | None:
    """Bytes that a process here may still take: of the machine, and within its control groups.

    None where the system does not tell (no ``/proc/meminfo``).

    Args:
        root: where ``proc`` and ``sys`` are.
    """
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvail"))
    except (OSError, StopIteration, ValueError):
        return None
    return min([free, *_left_in_groups(root)])


def _left_in_groups(root: Path) -> list[int]:
    """What each control group around this process has left, where one is limited."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            found += _left(root / "sys/fs/cgroup", path, "memory.max", "memory.current", "")
        elif "memory" in controllers.split(","):
            files = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
            found += _left(root / "sys/fs/cgroup/memory", path, *files)
    return found


def _left(base: Path, path: str, limit: str, used: str, prefix: str) -> list[int]:
    """A group and those that it is in; from inside a container only a part of them is seen."""
    parts = Path(path.lstrip("/")).parts
    found = []
    for depth in range(len(parts), -1, -1):
        group = base.joinpath(*parts[:depth])
        most, now = _number(group / limit), _number(group / used)
        if most is None or now is None or most >= _NO_LIMIT:
            continue
        found.append(max(0, most - now + _given_back(group / "memory.stat", prefix)))
    return found


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # no such group, or "max"
        return None


def _given_back(path: Path, prefix: str) -> int:
    """Bytes of the file cache that the kernel gives back where others need them."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    wanted = (f"{prefix}inactive_file ", f"{prefix}active_file ")
    return sum(int(line.split()[1]) for line in lines if line.startswith(wanted))
