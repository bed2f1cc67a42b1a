"""Time and memory of the AAM softmax over 100,000 speakers, beside the textbook's and others.

One step is loss and gradients of embeddings (64, 192) and prototypes (100,000, 192). All systems
start from the same tensors and their losses and gradients must agree. They are interleaved: in
every round each runs once, in turning order; a ratio is the median over the rounds of the ratio
within a round.

Two peaks, both with the gradients: resident memory, the most that a process of its own needed above
what it had before the step (Linux); and what torch allocated, by its profiler. Of the latter the
gradient of the prototypes alone is a fifth of the textbook's.

Run it alone with ``python benchmarks/aam_softmax.py [--classes 100000 --rounds 9 --json]``.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch
from allocations import peak_bytes
from harness.interleaving import interleave, ratio
from torch import Tensor
from torch.nn import functional

from voicehub_xvector.losses.aam_softmax import aam_softmax
from voicehub_xvector.speechbrain_parts import speechbrain_part

BATCH, SIZE = 64, 192
SCALE, MARGIN = 30.0, 0.2

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


def textbook(embeddings: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
    """As the paper and most toolkits write it: everything on the full matrix of cosines."""
    cosine = functional.linear(functional.normalize(embeddings), functional.normalize(weight))
    sine = torch.sqrt((1.0 - cosine.pow(2)).clamp(0.0, 1.0))
    phi = cosine * math.cos(MARGIN) - sine * math.sin(MARGIN)
    beyond = cosine - math.sin(math.pi - MARGIN) * MARGIN
    phi = torch.where(cosine > math.cos(math.pi - MARGIN), phi, beyond)
    one_hot = torch.zeros_like(cosine).scatter_(1, labels.unsqueeze(1), 1.0)
    logits = SCALE * (one_hot * phi + (1.0 - one_hot) * cosine)
    return functional.cross_entropy(logits, labels)


def speechbrain(embeddings: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
    """Its classifier's cosines and its loss."""
    losses = speechbrain_part("nnet.losses")
    loss = losses.LogSoftmaxWrapper(losses.AdditiveAngularMargin(MARGIN, SCALE))
    cosine = functional.linear(functional.normalize(embeddings), functional.normalize(weight))
    value: Tensor = loss(cosine.unsqueeze(1), labels.unsqueeze(1))
    return value


def target_column(embeddings: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
    """The margin on the right class's column alone, still on the full matrix."""
    cosine = functional.linear(functional.normalize(embeddings), functional.normalize(weight))
    own = cosine.gather(1, labels.unsqueeze(1))
    hard = torch.cos(torch.acos(own.clamp(-1 + 1e-7, 1 - 1e-7)) + MARGIN)
    return functional.cross_entropy(SCALE * cosine.scatter(1, labels.unsqueeze(1), hard), labels)


def ours(embeddings: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
    """``xvector.aam_softmax``."""
    return aam_softmax(embeddings, weight, labels, scale=SCALE, margin=MARGIN).mean()


SYSTEMS: dict[str, Loss] = {
    "textbook": textbook,
    "speechbrain": speechbrain,
    "target column": target_column,
    "voicehub": ours,
}


def make_inputs(classes: int, batch: int = BATCH) -> tuple[Tensor, Tensor, Tensor]:
    """Embeddings that lean towards their prototypes, as in training."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(classes, SIZE, generator=generator)
    labels = torch.randint(0, classes, (batch,), generator=generator)
    embeddings = torch.randn(batch, SIZE, generator=generator) + 0.5 * weight[labels]
    return embeddings, weight, labels


def step(loss: Loss, inputs: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Loss and both gradients."""
    embeddings, weight, labels = inputs
    leaves = (embeddings.detach().requires_grad_(), weight.detach().requires_grad_())
    value = loss(*leaves, labels)
    value.backward()
    gradients = leaves[0].grad, leaves[1].grad
    assert gradients[0] is not None and gradients[1] is not None
    return value.detach(), *gradients


def check_that_they_agree(
    name: str, found: Sequence[Tensor], expected: Sequence[Tensor], tolerance: float = 2e-3
) -> None:
    """Raise unless loss and gradients agree to a share of their largest value."""
    for what, ours_, theirs in zip(("loss", "dE", "dW"), found, expected, strict=True):
        error = float((ours_ - theirs).abs().max() / theirs.abs().max())
        if not error <= tolerance:
            raise RuntimeError(f"{name}: {what} differs from the textbook's by {error:.1e}")


def resident_peak_mb(name: str, classes: int) -> float:
    """Megabytes of resident memory that a step of a system adds, in a process of its own."""
    command = [sys.executable, str(Path(__file__)), "--classes", str(classes), "--resident", name]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(result.stderr.strip()[-2000:])
    return float(result.stdout.splitlines()[-1])


def _resident_peak_here(name: str, classes: int) -> float:
    step(SYSTEMS[name], make_inputs(1000))  # libraries and their buffers
    inputs = make_inputs(classes)
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    before = _status("VmRSS")
    step(SYSTEMS[name], inputs)
    return _status("VmHWM") - before


def _status(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1024


def measure(classes: int, rounds: int) -> dict[str, dict[str, float]]:
    """Seconds, megabytes and ratios to the textbook of every system."""
    resident = {name: resident_peak_mb(name, classes) for name in SYSTEMS}
    inputs = make_inputs(classes)
    expected = step(textbook, inputs)
    allocated = {}
    for name, loss in SYSTEMS.items():
        check_that_they_agree(name, step(loss, inputs), expected)
        allocated[name] = peak_bytes(lambda loss=loss: step(loss, inputs)) / 1e6  # type: ignore[misc]
    del expected
    works = {name: partial(step, loss, inputs) for name, loss in SYSTEMS.items()}
    seconds = interleave(works, rounds, warm_up=False)
    base = seconds["textbook"]
    return {
        name: {
            "seconds": statistics.median(times),
            "time_ratio": ratio(times, base),
            "resident_mb": resident[name],
            "resident_ratio": resident[name] / resident["textbook"],
            "allocated_mb": allocated[name],
            "allocated_ratio": allocated[name] / allocated["textbook"],
        }
        for name, times in seconds.items()
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Time and memory of AAM softmax losses.")
    parser.add_argument("--classes", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, help="by default as many as torch takes")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    parser.add_argument("--resident", choices=list(SYSTEMS), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.resident:
        print(_resident_peak_here(options.resident, options.classes))
        return 0
    if options.threads:
        torch.set_num_threads(options.threads)
    found = measure(options.classes, options.rounds)
    heads = ("seconds", "ratio", "resident MB", "ratio", "allocated MB", "ratio")
    print(f"{'system':14}" + "".join(f"{head:>14}" for head in heads))
    for name, row in found.items():
        print(f"{name:14}" + "".join(f"{value:14.3f}" for value in row.values()))
    if options.json:
        print(json.dumps({"classes": options.classes, "systems": found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
