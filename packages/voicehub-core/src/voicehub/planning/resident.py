"""By how much this process has grown, as the kernel counts."""

from __future__ import annotations

from pathlib import Path


class ResidentGrowth:
    """The most resident memory beyond what the process held when this was made.

    Tensors are a part of it, and so are libraries that load in the meantime, pages of mapped files
    and what the C library's allocator keeps.

    Args:
        process: folder of ``/proc``.
    """

    def __init__(self, process: Path = Path("/proc/self")) -> None:
        self._status = process / "status"
        self._before = None
        try:
            (process / "clear_refs").write_text("5")  # the high-water mark begins anew
            self._before = self._bytes("VmRSS")
        except OSError:  # another system, or a container that keeps this shut
            return

    def most(self) -> int | None:
        """Bytes, or None where the system does not tell."""
        try:
            peak = self._bytes("VmHWM")
        except OSError:
            return None
        if self._before is None or peak is None:
            return None
        return max(0, peak - self._before)

    def _bytes(self, name: str) -> int | None:
        for line in self._status.read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
        return None
