"""Losses with kernels on a CUDA device: numbers against float64, repeatability, speed.

Run it where there is a GPU: ``python benchmarks/gpu_losses.py [--json]``. It takes a minute or two,
ends with 1 if a number is wrong, and with 2 where there is no device; nothing depends on it.

* ``alignment``: every frame equals that of the float64 search in torch operators, for all dtypes,
  strides and lengths, equal bits in 20 runs, lengths that allow no path flagged, compiled with
  ``torch.compile``; timed beside the way through the CPU that published trainers take.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from voicehub_vits.losses import maximum_path

RUNS = 20
ROUNDS = 30
SHAPES = ((3, 1, 1), (4, 17, 90), (8, 160, 640), (2, 700, 1500), (2, 2048, 4096))
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def batch(
    shape: tuple[int, int, int], dtype: torch.dtype, device: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, text lengths and frame lengths; the last item has as many frames as positions."""
    torch.manual_seed(sum(shape))
    count, text, frames = shape
    scores = (torch.randn(shape) * 30.0 - 150.0).to(device, dtype)
    text_lengths = torch.linspace(max(1, text // 2), text, count).long()
    frame_lengths = torch.linspace(max(text, frames * 0.6), frames, count).long()
    frame_lengths[-1] = text_lengths[-1]
    return scores, text_lengths.to(device), frame_lengths.to(device)


def numbers(device: str, kernel: str) -> list[str]:
    """What is wrong, one line each."""
    wrong: list[str] = []
    for shape in SHAPES:
        for dtype in DTYPES:
            scores, *sizes = batch(shape, dtype, device)
            exact = maximum_path(
                scores.double().cpu(), *(values.cpu() for values in sizes), kernel="torch"
            )
            turned = scores.transpose(1, 2).contiguous().transpose(1, 2)
            for layout, values in (("frames last", scores), ("frames first", turned)):
                found = maximum_path(values, *sizes, kernel=kernel).cpu()
                unlike = int((found != exact).sum())
                if unlike:
                    wrong.append(f"{shape} {dtype} {layout}: {unlike} frames unlike float64")
    scores, *sizes = batch(SHAPES[2], torch.float32, device)
    first = maximum_path(scores, *sizes, kernel=kernel)
    if not all(
        torch.equal(first, maximum_path(scores, *sizes, kernel=kernel)) for _ in range(RUNS)
    ):
        wrong.append(f"{RUNS} runs are not equal")
    bad = sizes[0].clone()
    bad[0] = sizes[1][0] + 1
    flagged = maximum_path(scores, bad, sizes[1], check=False, kernel=kernel)
    if not (flagged[0] == -1).all() or not torch.equal(flagged[1:], first[1:]):
        wrong.append("text longer than the frames is not flagged, or disturbs others")
    compiled = torch.compile(maximum_path, fullgraph=True)
    if not torch.equal(compiled(scores, *sizes, kernel=kernel), first):
        wrong.append("compiled, the path is another")
    return wrong


def milliseconds(work: Callable[[], object]) -> float:
    """Median of rounds, the device waited for."""
    times = []
    for _ in range(ROUNDS + 3):
        torch.cuda.synchronize()
        began = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return 1e3 * statistics.median(times[3:])


def speed() -> dict[str, float]:
    """Milliseconds of our kernel, of torch operators, and through the CPU with our C."""
    scores, *sizes = batch((16, 160, 640), torch.float32, "cuda")

    def through_the_cpu() -> Tensor:
        found = maximum_path(scores.cpu(), *(values.cpu() for values in sizes))
        return found.cuda()

    return {
        "triton": milliseconds(lambda: maximum_path(scores, *sizes, kernel="triton")),
        "torch operators": milliseconds(lambda: maximum_path(scores, *sizes, kernel="torch")),
        "copy to the CPU and back": milliseconds(through_the_cpu),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("no CUDA device: nothing was measured", file=sys.stderr)
        return 2
    wrong = numbers("cuda", "triton")
    result: dict[str, Any] = {"device": torch.cuda.get_device_name(), "wrong": wrong}
    result["alignment_ms"] = {name: round(value, 4) for name, value in speed().items()}
    print("\n".join(wrong) or "every number is right")
    for name, value in result["alignment_ms"].items():
        print(f"{name:28}{value:10.3f} ms")
    if options.json:
        print(json.dumps(result))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
