"""Peak of what torch allocates on the CPU during a call, from its own profiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.profiler import ProfilerActivity, profile


def peak_bytes(run: Callable[[], Any]) -> int:
    """Highest sum of allocations minus releases while ``run`` runs; what existed before is 0.

    Raises:
        RuntimeError: the profiler saw no allocation.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    results: Any = profiler.profiler
    events = [e for e in results.kineto_results.events() if e.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    if not peak:
        raise RuntimeError("torch's profiler reported no allocation")
    return peak
