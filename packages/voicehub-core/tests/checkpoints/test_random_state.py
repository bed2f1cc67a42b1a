"""All global generators are captured and restored exactly."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from voicehub.checkpoints.random_state import (
    capture_random_state,
    preserved_random_state,
    restore_random_state,
)
from voicehub.errors import CheckpointMismatchError


def draw():
    return (
        torch.rand(2).tolist(),
        torch.randn(1).item(),
        np.random.randn(3).tolist(),
        np.random.rand(),
        random.random(),
        random.gauss(0, 1),
    )


@pytest.mark.parametrize("pending", [False, True])
def test_draws_continue_where_they_were(pending):
    if pending:
        np.random.randn()
        random.gauss(0, 1)
    state = capture_random_state()
    expected = draw()
    draw()
    restore_random_state(state)
    assert draw() == expected


def test_another_numpy_source_is_captured_too():
    before = np.random.get_bit_generator()
    try:
        np.random.set_bit_generator(np.random.PCG64(3))
        state = capture_random_state()
        expected = np.random.rand(3).tolist()
        restore_random_state(state)
        assert np.random.rand(3).tolist() == expected
    finally:
        np.random.set_bit_generator(before)


def test_a_block_leaves_no_trace_even_when_it_fails():
    state = capture_random_state()
    expected = draw()
    restore_random_state(state)
    with pytest.raises(RuntimeError, match="inside"), preserved_random_state():
        draw()
        raise RuntimeError("inside")
    assert draw() == expected


def test_capturing_starts_no_device():
    state = capture_random_state()
    assert "cuda" not in state or torch.cuda.is_initialized()


def test_missing_devices_are_refused_before_anything_is_set():
    state = capture_random_state()
    expected = draw()
    devices = [torch.zeros(16, dtype=torch.uint8)] * (torch.cuda.device_count() + 1)
    restore_random_state(state)
    with pytest.raises(CheckpointMismatchError, match=r"CUDA generator\(s\)"):
        restore_random_state({**state, "cuda": devices})
    assert draw() == expected


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_draws_continue():
    torch.cuda.init()
    state = capture_random_state()
    expected = torch.rand(3, device="cuda").tolist()
    restore_random_state(state)
    assert torch.rand(3, device="cuda").tolist() == expected
