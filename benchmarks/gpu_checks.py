"""What the checks of ``gpu_losses.py`` share: how far apart numbers are, and equal runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

RUNS = 20
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)

Work = Callable[[], object]
Found = tuple[Tensor, Tensor]


class Check(NamedTuple):
    """One loss.

    Attributes:
        numbers: what is wrong on a device, one line each.
        works: what to time on CUDA, by name; ours first.
    """

    numbers: Callable[[str], list[str]]
    works: Callable[[], dict[str, Work]]


def apart(found: Tensor, exact: Tensor) -> float:
    """Greatest difference over the largest value; infinities must be the same ones."""
    found, exact = found.detach().double().cpu(), exact.detach().double().cpu()
    if not torch.equal(found.isfinite(), exact.isfinite()):
        return float("inf")
    sound = exact.isfinite()
    scale = exact[sound].abs().max() if sound.any() else torch.tensor(1.0)
    difference = (found - exact)[sound].abs().max() if sound.any() else torch.tensor(0.0)
    return float(difference / scale.clamp(min=1e-30))


def tolerance(dtype: torch.dtype) -> float:
    """Of a gradient in a dtype, as a share of its largest value."""
    return {torch.float64: 1e-9, torch.float32: 2e-5}.get(dtype, torch.finfo(dtype).eps * 2)


def beyond(what: str, found: Tensor, exact: Tensor, most: float) -> list[str]:
    """A line where a tensor is further from the exact one than it may be."""
    error = apart(found, exact)
    return [] if error <= most else [f"{what}: off by {error:.1e}, over {most:.0e}"]


def unequal(run: Callable[[], Found]) -> list[str]:
    """A line where runs differ in a bit."""
    first = tuple(run())
    for _ in range(RUNS):
        if not all(torch.equal(*pair) for pair in zip(run(), first, strict=True)):
            return [f"{RUNS} runs are not equal"]
    return []


def unlike_compiled(run: Callable[..., Tensor], *values: Tensor) -> list[str]:
    """A line where the compiled function, in one graph, has another result."""
    torch._dynamo.reset()
    found, exact = torch.compile(run, fullgraph=True)(*values), run(*values)
    return (
        [] if torch.equal(found, exact) else [f"compiled, it is off by {apart(found, exact):.1e}"]
    )
