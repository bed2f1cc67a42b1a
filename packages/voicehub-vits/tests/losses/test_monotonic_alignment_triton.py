"""The CUDA path without a GPU, in a strict interpreter."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed: no CUDA path to test")

from strict_interpreter import OutOfBounds, Race, StrictKernel, cause, weakened

from voicehub.kernels import Selection
from voicehub_vits.losses import maximum_path
from voicehub_vits.losses.monotonic_alignment import _triton, ops

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


@pytest.mark.parametrize("seed", range(3))
def test_its_path_is_that_of_the_cpu_for_random_shapes_and_lengths(seed: int) -> None:
    draw = random.Random(seed)
    torch.manual_seed(seed)
    items, text, frames = draw.randint(1, 4), draw.randint(1, 11), draw.randint(1, 25)
    scores = (torch.randn(items, text, frames) * 10.0 ** draw.randint(-2, 6)).to(
        draw.choice(DTYPES)
    )
    sizes = (
        torch.tensor([draw.randint(0, text + 1) for _ in range(items)]),
        torch.tensor([draw.randint(0, frames + 1) for _ in range(items)]),
    )
    assert torch.equal(run(scores, *sizes), maximum_path(scores, *sizes, check=False))


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


@pytest.mark.parametrize(
    ("kernel", "old", "new"),
    [
        (0, "mask=inside & (frame + 1 < frames)", "mask=inside"),
        (0, "mask=inside & (frames > 0)", "mask=lanes >= 0"),
        (0, "inside = lanes < text", "inside = lanes < BLOCK"),
        (0, "(frames <= most_frames)", "(frames <= 99)"),
        (1, "(text <= most_text)", "(text <= 99)"),
        (1, "range(frames, most_frames)", "range(frames, most_frames + 1)"),
    ],
)
def test_a_bound_that_is_taken_away_is_caught(
    kernel: int, old: str, new: str, tmp_path: Path
) -> None:
    torch.manual_seed(2)
    kernels = [StrictKernel(_triton._forward), StrictKernel(_triton._backtrack)]
    source = (_triton._forward, _triton._backtrack)[kernel]
    kernels[kernel] = weakened(source, old, new, tmp_path)
    last = 7 if "text" in old and kernel else 5
    sizes = torch.tensor([5, 5, 5, last]), torch.tensor([12, 14, 12, 12])
    with pytest.raises(Exception, match=r"load|store") as caught:
        _triton.maximum_path(torch.randn(4, 5, 12), *sizes, *kernels)
    assert isinstance(cause(caught.value), OutOfBounds | Race)


def test_it_runs_on_the_device_of_the_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton launches on the current device, whatever the tensors' is."""
    devices = []
    monkeypatch.setattr(torch.cuda, "device", lambda on: devices.append(on) or nullcontext())
    monkeypatch.setattr(ops.KERNELS, "select", lambda *_: Selection("triton", "cuda", "a test"))
    monkeypatch.setattr(_triton, "maximum_path", lambda *_: "found")
    scores, sizes = torch.zeros(1, 2, 3), (torch.tensor([2]), torch.tensor([3]))
    assert ops._on_cuda(scores, *sizes, True, "") == "found"
    assert devices == [scores.device]
