"""Losses with kernels of their own, each beside the best public implementation on the CPU.

All of a case runs in one process, interleaved, each in turn the first, medians compared; the peak
of allocated memory above what the inputs take is measured in rounds of its own.

* ``ctc``: log-softmax and CTC from logits to their gradient, beside ``log_softmax`` and torch's
  ``ctc_loss``, for characters and for a large vocabulary.
* ``ctc-regularisers``: the divergences of label smoothing and of two views, to the gradients of
  both, beside ``log_softmax`` and ``kl_div``.
* ``linear-cross-entropy``: hidden states to the cross-entropy of eight heads and the gradients of
  both, beside all logits and ``cross_entropy``; all labels valid, and half of them masked.
* ``alignment``: monotonic alignment search over a batch of scores, against the published Cython
  package. ``index`` is what training needs, the text position of each frame; ``dense`` the matrix
  of ones and zeros that the package returns; ``frames first`` the layout in which our model
  computes its scores.
* ``aam-softmax``: margin softmax over 100,000 classes to the gradients of embeddings and
  prototypes, beside the textbook's; ``aam_softmax.py`` has more rivals.
* ``velocity``: squared error of a flow's velocity over valid frames, and its gradient, beside the
  lines that recipes write: target, difference, mask.

Run it alone with ``python benchmarks/losses.py [NAME ...] [--rounds 15 --threads 1 --json]``.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from allocations import peak_bytes
from loss_cases import (
    Case,
    Work,
    aam_softmax,
    alignment,
    ctc,
    linear_cross_entropy,
    regularisers,
    velocity,
)


def measure(case: Case, rounds: int) -> Case:
    """Median seconds of each work; the order turns by one every round."""
    times: dict[str, list[float]] = {name: [] for name in case.works}
    names = list(case.works)
    for name in names:
        case.works[name]()
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            began = time.perf_counter()
            case.works[name]()
            times[name].append(time.perf_counter() - began)
    case.seconds = {name: statistics.median(values) for name, values in times.items()}
    if case.weighed:
        case.megabytes = {name: peak_megabytes(work) for name, work in case.works.items()}
    return case


def peak_megabytes(work: Work) -> float:
    """Peak of what torch allocates during the work, or of resident memory if that rises more.

    Small tensors come from memory that the process holds already, and room that compiled code
    takes is not seen by torch: neither figure alone tells all.
    """
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    before = _status("VmRSS")
    work()
    resident = _status("VmHWM") - before
    return max(resident, peak_bytes(work)) / 1e6


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"the system does not report {name}")


CASES: Mapping[str, Callable[[], list[Case]]] = {
    "linear-cross-entropy": lambda: [
        linear_cross_entropy(4096, 512, 8, 1024, masked) for masked in (0.0, 0.5)
    ],
    "ctc": lambda: [ctc(16, 400, 32, 80), ctc(8, 1000, 5000, 120)],
    "ctc-regularisers": lambda: [regularisers(8, 400, 1000)],
    "alignment": lambda: [alignment()],
    "aam-softmax": lambda: [aam_softmax()],
    "velocity": lambda: [
        velocity(16, 800, 100),
        velocity(16, 800, 100, torch.bfloat16),
        velocity(4, 4000, 512),
    ],
}


def report(case: Case) -> str:
    """The case as text."""
    weighed = bool(case.megabytes)
    heads = "".join(f"{head:>10}" for head in ("ms", "x faster", *["peak MB"] * weighed))
    lines = [case.title, f"  {'':28}{heads}"]
    for name, seconds in case.seconds.items():
        peak = f"{case.megabytes[name]:10.1f}" if weighed else ""
        lines.append(f"  {name:28}{1e3 * seconds:10.3f}{case.speed(name):10.2f}{peak}")
    return "\n".join([*lines, *(f"  {name}: {value:g}" for name, value in case.facts.items())])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"of {', '.join(CASES)}; all when none is named")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in CASES]
    if unknown or options.rounds < 1 or options.threads < 1:
        parser.error(f"no case {unknown}" if unknown else "--rounds, --threads: at least 1")
    torch.set_num_threads(options.threads)
    cases = {
        name: [measure(case, options.rounds) for case in CASES[name]()]
        for name in options.names or CASES
    }
    print("\n\n".join(report(case) for group in cases.values() for case in group))
    if options.json:
        found = [
            {
                "loss": name,
                "case": case.title,
                "rival": case.rival,
                "seconds": case.seconds,
                "faster": {name: round(case.speed(name), 3) for name in case.seconds},
                "facts": case.facts,
                "megabytes": case.megabytes,
            }
            for name, group in cases.items()
            for case in group
        ]
        print(json.dumps({"cases": found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
