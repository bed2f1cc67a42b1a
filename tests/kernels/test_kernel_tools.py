"""The strict interpreter refuses what it should, the ahead-of-time gate sees spills and atomics."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed")

import triton
import triton.language as tl
from ahead_of_time import Job, compile_all
from strict_interpreter import (
    MissingBarrier,
    OutOfBounds,
    Race,
    StrictKernel,
    cause,
    weakened,
)


@triton.jit
def shift(
    values, scratch, out, count, BLOCK: tl.constexpr, BOUND: tl.constexpr, WAIT: tl.constexpr
):
    lanes = tl.arange(0, BLOCK)
    inside = lanes < (count if BOUND else BLOCK)
    tl.store(scratch + lanes, tl.load(values + lanes, mask=inside), mask=inside)
    if WAIT:
        tl.debug_barrier()
    before = inside & (lanes > 0)
    tl.store(out + lanes, tl.load(scratch + lanes - 1, mask=before, other=0.0), mask=inside)


@triton.jit
def greedy(values, out, count, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    tl.atomic_add(out + lanes % 2, tl.load(values + lanes, mask=lanes < count))


def launch(bound: bool, wait: bool) -> list[float]:
    values, scratch, out = torch.arange(5.0), torch.empty(5), torch.empty(5)
    StrictKernel(shift)[(1,)](values, scratch, out, 5, BLOCK=8, BOUND=bound, WAIT=wait)
    return out.tolist()


def test_a_sound_kernel_runs() -> None:
    assert launch(bound=True, wait=True) == [0.0, 0.0, 1.0, 2.0, 3.0]


def test_a_missing_bound_is_caught() -> None:
    with pytest.raises(Exception, match="load of 3 addresses") as caught:
        launch(bound=False, wait=True)
    assert isinstance(cause(caught.value), OutOfBounds)


def test_a_missing_barrier_is_caught() -> None:
    with pytest.raises(Exception, match="no barrier between") as caught:
        launch(bound=True, wait=False)
    assert isinstance(cause(caught.value), MissingBarrier)


@triton.jit
def doubled(value):
    return value + value


@triton.jit
def total(values, out, count, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    place = out + tl.program_id(0)
    tl.store(place, 0.0)
    tl.debug_barrier()
    found = tl.load(values + lanes, mask=lanes < count, other=0.0)
    tl.store(place, doubled(tl.sum(found, 0)))


def test_kernels_may_call_functions_and_reduce() -> None:
    out = torch.empty(3)
    StrictKernel(total)[(3,)](torch.arange(5.0), out, 5, BLOCK=8)
    assert out.tolist() == [20.0] * 3


def test_a_second_store_needs_a_barrier(tmp_path: Path) -> None:
    kernel = weakened(total, "tl.debug_barrier()", "pass", tmp_path)
    with pytest.raises(Exception, match="store of what this program stored") as caught:
        kernel[(1,)](torch.arange(5.0), torch.empty(3), 5, BLOCK=8)
    assert isinstance(cause(caught.value), MissingBarrier)


def test_programs_and_lanes_that_meet_are_caught(tmp_path: Path) -> None:
    together = weakened(total, "out + tl.program_id(0)", "out", tmp_path)
    with pytest.raises(Exception, match="what another program stored") as caught:
        together[(3,)](torch.arange(5.0), torch.empty(3), 5, BLOCK=8)
    assert isinstance(cause(caught.value), Race)
    halved = weakened(
        shift, "tl.store(scratch + lanes,", "tl.store(scratch + lanes // 2,", tmp_path
    )
    with pytest.raises(Exception, match="two lanes store to one place"):
        halved[(1,)](
            torch.arange(5.0), torch.empty(5), torch.empty(5), 5, BLOCK=8, BOUND=True, WAIT=True
        )


def test_nothing_stays_patched() -> None:
    from triton.runtime.interpreter import interpreter_builder

    before = type(interpreter_builder).create_masked_load, tl.core.reduce, tl.load
    with pytest.raises(Exception, match="outside the tensors"):
        launch(bound=False, wait=True)
    StrictKernel(total)[(1,)](torch.arange(5.0), torch.empty(1), 5, BLOCK=8)
    assert before == (type(interpreter_builder).create_masked_load, tl.core.reduce, tl.load)
    with pytest.raises(RuntimeError, match="outside of the scope of a kernel"):
        doubled(1.0)


def test_atomics_are_seen_in_the_binary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    types = {"values": "*fp32", "out": "*fp32", "count": "i32"}
    job = Job(f"{Path(__file__).stem}:greedy", types, {"BLOCK": 64}, 1, 90)
    (binary,) = compile_all([job], tmp_path)
    assert binary.atomics and binary.registers > 0
