"""The CUDA path of the velocity error without a GPU, in a strict interpreter."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="triton is not installed: no CUDA path to test")

from strict_interpreter import MissingBarrier, OutOfBounds, Race, StrictKernel, cause, weakened

from voicehub_flow.losses.masked_velocity_mse import _torch, _triton, ops

KERNELS = {"_forward": _triton._forward, "_backward": _triton._backward}
#: Triton's interpreter truncates to bfloat16 where a GPU rounds.
TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 8e-3}


@pytest.fixture(autouse=True)
def poisoned_memory() -> Iterator[None]:
    """What ``torch.empty`` returns is filled with what is no number."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def batch(shape: tuple[int, int, int]) -> tuple[Tensor, ...]:
    """Prediction, noise, data and mask; NaN where the mask is not set."""
    torch.manual_seed(sum(shape))
    mask = torch.rand(shape[:2]) < 0.7
    tensors = [torch.randn(shape).masked_fill(~mask[..., None], torch.nan) for _ in range(3)]
    return (*tensors, mask)


def run(values: tuple[Tensor, ...], **replaced: StrictKernel) -> tuple[Tensor, Tensor]:
    kernels: dict[str, Any] = {name: StrictKernel(kernel) for name, kernel in KERNELS.items()}
    kernels.update(replaced)
    errors = _triton.forward(*values, 0.1, kernels["_forward"])
    upstream = torch.arange(1, len(errors) + 1, dtype=errors.dtype)
    return errors, _triton.backward(upstream, *values, 0.1, kernels["_backward"])


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 21, 7), (2, 9, 150), (2, 3, 32)])
@pytest.mark.parametrize("dtype", list(TOLERANCES))
def test_it_equals_the_path_in_torch_operators(
    shape: tuple[int, int, int], dtype: torch.dtype
) -> None:
    prediction, noise, data, mask = batch(shape)
    for others in (dtype, torch.float32):
        values = (prediction.to(dtype), noise.to(others), data.to(dtype), mask)
        errors, gradient = run(values)
        wanted = _torch.forward(*values, 0.1)
        assert errors.dtype == wanted.dtype and gradient.dtype == dtype
        exact = dtype == torch.float64
        torch.testing.assert_close(errors, wanted, rtol=1e-12 if exact else 1e-6, atol=1e-6)
        upstream = torch.arange(1, len(errors) + 1, dtype=errors.dtype)
        torch.testing.assert_close(
            gradient,
            _torch.backward(upstream, *values, 0.1),
            rtol=TOLERANCES[dtype],
            atol=TOLERANCES[dtype],
        )
        assert (gradient[~mask] == 0).all()


@pytest.mark.parametrize("seed", range(3))
def test_it_equals_the_path_in_torch_operators_for_random_shapes(seed: int) -> None:
    draw = random.Random(seed)
    shape = (draw.randint(1, 3), draw.randint(1, 20), draw.randint(1, 140))
    values = batch(shape)
    errors, gradient = run(values)
    torch.testing.assert_close(errors, _torch.forward(*values, 0.1), rtol=1e-6, atol=1e-6)
    upstream = torch.arange(1, len(errors) + 1, dtype=errors.dtype)
    wanted = _torch.backward(upstream, *values, 0.1)
    torch.testing.assert_close(gradient, wanted, rtol=1e-5, atol=1e-5)


def test_any_strides_give_the_same_bits() -> None:
    *tensors, mask = batch((2, 6, 5))
    plain = run((*tensors, mask))
    turned = [values.transpose(1, 2).contiguous().transpose(1, 2) for values in tensors]
    expanded = (turned[0], turned[1], turned[2], mask.repeat_interleave(2, 1)[:, ::2])
    for one, other in zip(run(expanded), plain, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 0, 4), (2, 3, 0)])
def test_empty_tensors_have_no_error(shape: tuple[int, int, int]) -> None:
    errors, gradient = run(batch(shape))
    assert errors.tolist() == [0.0] * shape[0] and gradient.shape == shape


def test_frames_lie_where_a_grid_has_room_and_the_device_is_that_of_the_prediction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beyond its first dimension a grid holds 65,535; Triton launches on the current device."""
    grids, devices = [], []

    class Seen:
        def __getitem__(self, grid: tuple[int, ...]) -> Any:
            grids.append(grid)
            return lambda *arguments, **options: None

    *tensors, mask = batch((2, 300_000, 1))
    _triton.forward(*tensors, mask, 0.0, Seen())
    _triton.backward(torch.ones(2), *tensors, mask, 0.0, Seen())
    assert grids == [(18_750, 2)] * 2
    monkeypatch.setattr(ops, "_path", lambda *_: _triton)
    monkeypatch.setattr(torch.cuda, "device", lambda on: devices.append(on) or nullcontext())
    monkeypatch.setattr(_triton, "forward", lambda *_: torch.zeros(2))
    prediction = SimpleNamespace(device=torch.device("cuda", 1), is_cuda=True)
    ops._run("forward", prediction, "", prediction)
    assert devices == [prediction.device]


@pytest.mark.filterwarnings("ignore:invalid value encountered")  # on purpose
def test_an_upstream_that_is_no_number_stays_inside_the_mask() -> None:
    values = batch((2, 4, 3))
    upstream = torch.tensor([torch.nan, torch.inf])
    gradient = _triton.backward(upstream, *values, 0.0, StrictKernel(_triton._backward))
    assert (gradient[~values[3]] == 0).all() and not gradient[values[3]].isfinite().any()


@pytest.mark.parametrize(
    ("kernel", "old", "new"),
    [
        ("_forward", "mask=rows < frames", "mask=rows >= 0"),
        ("_forward", "valid[:, None] & (columns < channels)", "valid[:, None] & (columns >= 0)"),
        ("_forward", "item * tl.num_programs(0) + tl.program_id(0)", "item"),
        ("_backward", "inside = rows < frames", "inside = rows >= 0"),
        ("_backward", "valid[:, None] & (columns < channels)", "valid[:, None] & (columns >= 0)"),
        ("_backward", "mask=inside[:, None] & (columns < channels)", "mask=inside[:, None]"),
    ],
)
def test_a_bound_that_is_taken_away_is_caught(
    kernel: str, old: str, new: str, tmp_path: Path
) -> None:
    *tensors, mask = batch((2, 17, 5))
    mask[:] = True
    changed = {kernel: weakened(KERNELS[kernel], old, new, tmp_path)}
    with pytest.raises(Exception, match=r"load|store") as caught:
        run((*tensors, mask), **changed)
    assert isinstance(cause(caught.value), MissingBarrier | OutOfBounds | Race)
