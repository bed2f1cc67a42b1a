"""Where something was measured, in words that a reader can compare with their own machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Iterable
from pathlib import Path


def describe() -> dict[str, str]:
    """Processor, cores, memory, system, Python, and the niceness that this process runs with."""
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "memory": _memory(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "niceness": str(os.nice(0)) if hasattr(os, "nice") else "0",
    }


def versions(distributions: Iterable[str]) -> dict[str, str]:
    """Versions of those that are installed."""
    wanted = set(distributions)
    found = {
        installed.name: installed.version
        for installed in importlib.metadata.distributions()
        if installed.name in wanted
    }
    return dict(sorted(found.items()))


def load() -> float:
    """Processes that run or wait for a core, mean of the last minute; this one is among them."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else 0.0


def _processor() -> str:
    for line in _lines("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory() -> str:
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemTotal"):
            return f"{int(line.split()[1]) / 2**20:.0f} GiB"
    return "unknown"


def _lines(path: str) -> list[str]:
    file = Path(path)
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []
