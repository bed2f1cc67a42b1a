"""Losses with kernels of their own, each beside the best public implementation on the CPU.

All of a case runs in one process, interleaved, each in turn the first, medians compared; of those
with a gradient the peak of allocated memory above what the inputs take is measured in rounds of
their own.

* ``ctc``: log-softmax and CTC from logits to their gradient, beside ``log_softmax`` and torch's
  ``ctc_loss``, for characters and for a large vocabulary.
* ``linear-cross-entropy``: hidden states to the cross-entropy of eight heads and the gradients of
  both, beside all logits and ``cross_entropy``; all labels valid, and half of them masked.
* ``alignment``: monotonic alignment search over a batch of scores, against the published Cython
  package. ``index`` is what training needs, the text position of each frame; ``dense`` the matrix
  of ones and zeros that the package returns; ``frames first`` the layout in which our model
  computes its scores.

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
from dataclasses import dataclass, field
from pathlib import Path

import torch
from allocations import peak_bytes
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
        weighed: whether peak memory is measured too.
        seconds: median of each work.
        megabytes: peak of each work above what was allocated before.
    """

    title: str
    rival: str
    works: Mapping[str, Work]
    facts: dict[str, float] = field(default_factory=dict)
    weighed: bool = False
    seconds: dict[str, float] = field(default_factory=dict)
    megabytes: dict[str, float] = field(default_factory=dict)

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


def ctc(batch: int, frames: int, tokens: int, labels: int) -> Case:
    """Loss and gradient of logits as an untrained model has them."""
    from voicehub_asr_ctc.losses.ops import ctc_negative_log_likelihood

    torch.manual_seed(0)
    logits = torch.randn(batch, frames, tokens, requires_grad=True)
    target = torch.randint(1, tokens, (batch, labels))
    sizes = (torch.full((batch,), frames), target, torch.full((batch,), labels))

    def step(kernel: str) -> Tensor:
        losses = ctc_negative_log_likelihood(logits, *sizes, blank=0, kernel=kernel)
        (gradient,) = torch.autograd.grad(losses.mean(), logits)
        return gradient

    def exact(kernel: str) -> float:
        wide = logits.detach().double().requires_grad_()
        losses = ctc_negative_log_likelihood(wide, *sizes, blank=0, kernel="native")
        (gradient,) = torch.autograd.grad(losses.mean(), wide)
        return float((step(kernel) - gradient).abs().max()) * batch

    facts = {
        "gradient error": exact("c"),
        "gradient error of torch": exact("native"),
        "gradient error at 3,000 frames": long_error(),
    }
    works: dict[str, Work] = {
        "log_softmax + ctc_loss": lambda: float(step("native")[0, 0, 0]),
        "ours": lambda: float(step("c")[0, 0, 0]),
    }
    title = f"ctc, {batch} x {frames} frames x {tokens} tokens"
    return Case(title, "log_softmax + ctc_loss", works, facts, weighed=True)


def long_error() -> float:
    """Greatest error of our gradient over 3,000 frames in float32."""
    from voicehub_asr_ctc.losses.ops import ctc_negative_log_likelihood

    torch.manual_seed(1)
    logits, target = torch.randn(1, 3000, 32), torch.randint(1, 32, (1, 300))
    sizes = (torch.tensor([3000]), target, torch.tensor([300]))
    gradients = []
    for dtype, kernel in ((torch.float32, "c"), (torch.float64, "native")):
        values = logits.detach().to(dtype, copy=True).requires_grad_()
        ctc_negative_log_likelihood(values, *sizes, blank=0, kernel=kernel).sum().backward()
        gradients.append(values.grad.double())
    return float((gradients[0] - gradients[1]).abs().max())


def linear_cross_entropy(rows: int, size: int, heads: int, vocabulary: int, masked: float) -> Case:
    """Loss and gradients of hidden states and heads, with so large a share of masked labels."""
    from torch.nn import functional

    from voicehub.losses.linear_cross_entropy import IGNORED
    from voicehub.losses.linear_cross_entropy import linear_cross_entropy as fused

    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(rows, size, generator=generator, requires_grad=True)
    weight = torch.randn(heads, vocabulary, size, generator=generator)
    weight = (weight / size**0.5).requires_grad_()
    labels = torch.randint(0, vocabulary, (rows, heads), generator=generator)
    labels[torch.rand(rows, heads, generator=generator) < masked] = IGNORED

    def materialised() -> tuple[Tensor, ...]:
        logits = functional.linear(hidden, weight.flatten(0, 1)).view(rows * heads, vocabulary)
        loss = functional.cross_entropy(logits, labels.flatten(), ignore_index=IGNORED)
        return torch.autograd.grad(loss, (hidden, weight))

    def ours() -> tuple[Tensor, ...]:
        found = fused(hidden, weight, labels)
        loss = found.total / found.counts.sum().float()
        return torch.autograd.grad(loss, (hidden, weight))

    pairs = zip(ours(), materialised(), strict=True)
    error = max(float((own - other).abs().max() / other.abs().max()) for own, other in pairs)
    if error > 1e-4:
        raise RuntimeError(f"gradients differ from the materialised ones' by {error:.1e}")
    works: dict[str, Work] = {
        "logits + cross_entropy": lambda: float(materialised()[0][0, 0]),
        "ours": lambda: float(ours()[0][0, 0]),
    }
    title = f"linear cross-entropy, {rows} x {size} to {heads} x {vocabulary}, {masked:.0%} masked"
    facts = {"greatest difference of a gradient, relative": error}
    return Case(title, "logits + cross_entropy", works, facts, weighed=True)


CASES: Mapping[str, Callable[[], list[Case]]] = {
    "linear-cross-entropy": lambda: [
        linear_cross_entropy(4096, 512, 8, 1024, masked) for masked in (0.0, 0.5)
    ],
    "ctc": lambda: [ctc(16, 400, 32, 80), ctc(8, 1000, 5000, 120)],
    "alignment": lambda: [alignment()],
}


def report(case: Case) -> str:
    """The case as text."""
    heads = "".join(f"{head:>10}" for head in ("ms", "x faster", *["peak MB"] * case.weighed))
    lines = [case.title, f"  {'':28}{heads}"]
    for name, seconds in case.seconds.items():
        peak = f"{case.megabytes[name]:10.1f}" if case.weighed else ""
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
                "megabytes": case.megabytes,
            }
            for case in cases
        ]
        print(json.dumps({"cases": found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
