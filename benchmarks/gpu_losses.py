"""Losses with kernels on a CUDA device: numbers against float64, repeatability, speed.

Run it where there is a GPU: ``python benchmarks/gpu_losses.py [NAME ...] [--json]``. It takes a few
minutes, ends with 1 if a number is wrong, and with 2 where there is no device; nothing depends on
it. ``--cpu`` runs the checks of numbers on the CPU's paths, to try the script itself.

* ``alignment``: every frame equals that of the float64 search in torch operators, for all dtypes,
  strides and lengths, lengths that allow no path flagged; beside the way through the CPU that
  published trainers take.
* ``ctc``: losses and gradients against float64 on the CPU, to 3,000 frames and 1,000 labels; bad
  labels flagged, no frames, logits far apart; beside ``log_softmax`` and torch's own ``ctc_loss``,
  and cuDNN's.
* ``velocity``, ``divergences`` (of label smoothing and consistency), ``linear-cross-entropy``,
  ``aam-softmax``: losses and gradients against float64; beside the lines that recipes write.

Of all: equal bits in 20 runs, and compiled with ``torch.compile``. Tolerances are ten times those
of the CPU's tests.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from gpu_cases import CHECKS

ROUNDS = 30


def measured(work: Callable[[], object]) -> dict[str, float]:
    """Median milliseconds, the device waited for, and peak megabytes above what was there."""
    times = []
    for _ in range(ROUNDS + 3):
        torch.cuda.synchronize()
        began = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    work()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - before
    return {
        "ms": round(1e3 * statistics.median(times[3:]), 4),
        "peak_mb": round(peak / 1e6, 3),
    }


def attempted(name: str, numbers: Callable[[str], list[str]], device: str) -> list[str]:
    """What is wrong; an error is, too, and the other losses are still looked at."""
    try:
        return [f"{name}: {line}" for line in numbers(device)]
    except Exception as error:
        traceback.print_exc()
        return [f"{name}: {type(error).__name__}: {error}"]


def timed(works: Mapping[str, Callable[[], object]]) -> tuple[dict[str, Any], list[str]]:
    """Figures of each work, printed as they come, and which of ours did not run."""
    speed: dict[str, Any] = {}
    failed = []
    for what, work in works.items():
        try:
            row = speed[what] = measured(work)
        except RuntimeError as error:  # a rival that does not run here is no fault of ours
            print(f"  {what:36}  not measured: {error}", flush=True)
            if what.startswith(("triton", "ours")):
                failed.append(f"{what}: {error}")
            continue
        print(f"  {what:36}{row['ms']:10.3f} ms{row['peak_mb']:10.1f} MB", flush=True)
    return speed, failed


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"of {', '.join(CHECKS)}; all when none is named")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    parser.add_argument("--cpu", action="store_true", help="numbers alone, on the CPU's paths")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in CHECKS]
    if unknown:
        parser.error(f"no loss {unknown}")
    if not options.cpu and not torch.cuda.is_available():
        print("no CUDA device: nothing was measured", file=sys.stderr)
        return 2
    device = "cpu" if options.cpu else "cuda"
    result: dict[str, Any] = {
        "device": "cpu" if options.cpu else torch.cuda.get_device_name(),
        "wrong": [],
        "speed": {},
    }
    start = time.perf_counter()
    for name in options.names or CHECKS:
        began = time.perf_counter()
        wrong = attempted(name, CHECKS[name].numbers, device)
        result["wrong"] += wrong
        spent = time.perf_counter() - began
        print("\n".join(wrong) or f"{name}: every number is right ({spent:.0f} s)", flush=True)
        if options.cpu:
            continue
        result["speed"][name], failed = timed(CHECKS[name].works())
        result["wrong"] += [f"{name}: {line}" for line in failed]
    result["seconds"] = round(time.perf_counter() - start, 1)
    print(f"{result['seconds']:.0f} s in all")
    if options.json:
        print(json.dumps(result))
    return 1 if result["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
