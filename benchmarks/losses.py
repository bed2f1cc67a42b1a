"""Losses with kernels of their own, each beside the best public implementation on the CPU.

All of a case runs in one process, interleaved, each in turn the first, medians compared; peak
memory is that of the process above what the inputs take, measured in rounds of their own.

* ``alignment``: monotonic alignment search over a batch of scores, against the published Cython
  package. ``index`` is what training needs, the text position of each frame; ``dense`` the matrix
  of ones and zeros that the package returns; ``frames first`` the layout in which our model
  computes its scores.

Run it alone with ``python benchmarks/losses.py [NAME ...] [--rounds 15 --threads 1 --json]``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

Work = Callable[[], object]


@dataclass
class Case:
    """One measurement.

    Attributes:
        title: what is measured, with its sizes.
        rival: name of the public implementation in ``works``.
        works: what to time, by name; without arguments.
        facts: figures that are no times, such as differing frames.
    """

    title: str
    rival: str
    works: Mapping[str, Work]
    facts: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def speed(self, name: str) -> float:
        """Times faster than the rival."""
        return self.seconds[self.rival] / self.seconds[name]


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
    return case


def alignment(batch: int = 16, text: int = 160, frames: int = 640) -> Case:
    """Alignment search on scores as a model early in its training has them."""
    from monotonic_alignment_search import maximum_path as rival

    from voicehub_vits.losses import dense_path, maximum_path

    torch.manual_seed(0)
    scores = torch.randn(batch, text, frames) * 30.0 - 150.0
    frame_lengths = torch.linspace(frames * 0.6, frames, batch).long()
    text_lengths = (frame_lengths * text) // frames
    mask = torch.zeros(batch, text, frames)
    for item, (n, m) in enumerate(zip(text_lengths, frame_lengths, strict=True)):
        mask[item, :n, :m] = 1.0
    sizes = (text_lengths, frame_lengths)
    turned = scores.transpose(1, 2).contiguous().transpose(1, 2)
    works: dict[str, Work] = {
        "Cython package": lambda: rival(scores, mask),
        "ours, index": lambda: maximum_path(scores, *sizes),
        "ours, dense": lambda: dense_path(maximum_path(scores, *sizes), text),
        "ours, index, frames first": lambda: maximum_path(turned, *sizes),
    }
    exact = maximum_path(scores.double(), *sizes, kernel="torch")
    ours = maximum_path(scores, *sizes)
    facts = {
        "frames unlike float64": float((ours != exact).sum()),
        "frames unlike float64 at scores near -1e8": unlike_at_large_scores(scores, sizes),
        "frames unlike the package": float(
            (dense_path(ours, text) != rival(scores, mask)).any(1).sum()
        ),
    }
    return Case(
        f"alignment, {batch} x {text} positions x {frames} frames", "Cython package", works, facts
    )


def unlike_at_large_scores(scores: Tensor, sizes: tuple[Tensor, Tensor]) -> float:
    """Frames that differ from float64 where scores lie near -1e8."""
    from voicehub_vits.losses import maximum_path

    large = (scores * 1e3 - 1e8).float()
    exact = maximum_path(large.double(), *sizes, kernel="torch")
    return float((maximum_path(large, *sizes) != exact).sum())


CASES: Mapping[str, Callable[[], list[Case]]] = {
    "alignment": lambda: [alignment()],
}


def report(case: Case) -> str:
    """The case as text."""
    lines = [case.title, f"  {'':28}{'ms':>10}{'x faster':>10}"]
    lines += [
        f"  {name:28}{1e3 * seconds:10.3f}{case.speed(name):10.2f}"
        for name, seconds in case.seconds.items()
    ]
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
    cases = [
        measure(case, options.rounds) for name in options.names or CASES for case in CASES[name]()
    ]
    print("\n\n".join(map(report, cases)))
    if options.json:
        found = [
            {
                "case": case.title,
                "rival": case.rival,
                "seconds": case.seconds,
                "faster": {name: round(case.speed(name), 3) for name in case.seconds},
                "facts": case.facts,
            }
            for case in cases
        ]
        print(json.dumps({"cases": found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
