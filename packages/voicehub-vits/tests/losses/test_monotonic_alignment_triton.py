"""The CUDA path without a GPU: its numbers in a strict interpreter, its binaries ahead of time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed: no CUDA path to test")

from ahead_of_time import ARCHITECTURES, Job, compile_all
from strict_interpreter import StrictKernel

from voicehub_vits.losses import maximum_path
from voicehub_vits.losses.monotonic_alignment import _triton

MODULE = "voicehub_vits.losses.monotonic_alignment._triton"
LENGTHS = {"text_lengths": "*i64", "frame_lengths": "*i64", "moved": "*i8"}
SIZES = {"most_text": "i32", "most_frames": "i32"}
STRIDES = {"batch_stride": "i64", "text_stride": "i64", "frame_stride": "i64"}
MIDDLE = 90
DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]


def run(scores: torch.Tensor, *sizes: torch.Tensor) -> torch.Tensor:
    kernels = StrictKernel(_triton._forward), StrictKernel(_triton._backtrack)
    return _triton.maximum_path(scores, *sizes, *kernels)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("text", "frames"), [(1, 1), (1, 7), (9, 9), (12, 31)])
def test_its_path_is_that_of_the_cpu(dtype: torch.dtype, text: int, frames: int) -> None:
    torch.manual_seed(text)
    scores = torch.randn(4, text, frames).to(dtype)
    sizes = (
        torch.tensor([text, text, max(1, text // 2), text]),
        torch.tensor([frames, text, frames - frames // 4, frames]),
    )
    assert torch.equal(run(scores, *sizes), maximum_path(scores, *sizes))
    turned = scores.transpose(1, 2).contiguous().transpose(1, 2)
    assert torch.equal(run(turned, *sizes), maximum_path(scores, *sizes))


@pytest.fixture(autouse=True)
def poisoned_memory() -> Iterator[None]:
    """What ``torch.empty`` returns is filled with the largest numbers."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.filterwarnings("ignore:invalid value encountered in add")  # infinities, on purpose
def test_holes_ties_and_impossible_lengths() -> None:
    torch.manual_seed(0)
    scores = torch.randn(6, 5, 12).round()
    for value in (torch.nan, torch.inf, -torch.inf):
        scores[1] = scores[1].masked_fill(torch.rand(5, 12) < 0.2, value)
    scores[0] = 0.0
    sizes = torch.tensor([5, 5, 5, 0, -3, 6]), torch.tensor([12, 12, 4, 12, 12, 12])
    found = run(scores, *sizes)
    assert torch.equal(found, maximum_path(scores, *sizes, check=False))
    assert (found[2:] == -1).all() and (found[:2] >= 0).all()


def test_large_scores_lose_no_frame() -> None:
    torch.manual_seed(1)
    scores = torch.randn(1, 20, 40) * 1e5 - 1e8
    sizes = torch.tensor([20]), torch.tensor([40])
    assert torch.equal(run(scores, *sizes), maximum_path(scores.double(), *sizes))


def job(kernel: str, warps: int, architecture: int, dtype: str = "fp32", **constants: int) -> Job:
    """Sizes and strides of 1 are constants to the compiler, as at a launch."""
    pointers = {"scores": f"*{dtype}", **STRIDES} if kernel == "_forward" else {"index": "*i64"}
    types = {**pointers, **LENGTHS, **SIZES}
    return Job(f"{MODULE}:{kernel}", types, constants, warps, architecture)


def jobs() -> list[Job]:
    """The shipped configurations: text sizes, score dtypes, unit strides, one position.

    Half precision and unit strides are compiled for one architecture alone, to save time.
    """
    found = []
    ones = dict.fromkeys([*STRIDES, *SIZES], 1)
    for architecture in ARCHITECTURES:
        for block, warps in _triton.WARPS.items():
            own = (warps, architecture)
            wide, narrow = ("fp32", "fp64"), ("fp16", "bf16")
            dtypes = (*wide, *narrow) if architecture == MIDDLE else wide
            found += [job("_forward", *own, dtype, BLOCK=block) for dtype in dtypes]
            if architecture != MIDDLE:
                continue
            found += [
                job("_forward", *own, BLOCK=block, **{unit: 1})
                for unit in ("text_stride", "frame_stride")
            ]
        found.append(job("_forward", 1, architecture, BLOCK=128, **ones))
        found.append(job("_backtrack", 1, architecture))
        found.append(job("_backtrack", 1, architecture, **dict.fromkeys(SIZES, 1)))
    return found


def test_every_configuration_compiles_within_bounds(tmp_path: Path) -> None:
    wanted = jobs()
    for job, binary in zip(wanted, compile_all(wanted, tmp_path), strict=True):
        assert (binary.stack, binary.local) == (0, 0), f"{job} spills: {binary}"
        assert binary.registers <= 128, f"{job}: {binary}"
        assert binary.atomics == [], f"{job}: {binary}"
