"""The random states before an update: the same as the generators', cheaply."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from voicehub.checkpoints.codec import decode_state, encode_state
from voicehub.trainer.random_record import RandomRecord, RandomStates


def draws() -> tuple[float, ...]:
    return (random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn(),
            float(torch.rand(())))  # fmt: skip


@pytest.mark.parametrize("between", ["nothing", "uniform", "normal", "second normal", "python"])
def test_what_was_taken_repeats_the_draws(between: str) -> None:
    """A second normal number changes nothing that NumPy's source shows."""
    torch.manual_seed(0), np.random.seed(0), random.seed(0)
    record = RandomRecord("cpu")
    if between == "second normal":
        np.random.randn()
    for _ in range(3):
        record.take()
    if between == "uniform":
        np.random.rand()
    elif between == "python":
        random.random()
    elif between != "nothing":
        np.random.randn()
    states = record.take()
    first = draws()
    decoded = decode_state(encode_state(states.plain(), "test"))
    RandomStates.from_plain(decoded).restore("cpu")
    assert draws() == first


def test_another_source_of_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    np.random.seed(0)
    record = RandomRecord("cpu")
    record.take()
    old = np.random.get_bit_generator()
    try:
        np.random.set_bit_generator(np.random.PCG64(3))
        for _ in range(2):
            states = record.take()
            first = np.random.rand(3)
            np.random.set_state(states.numpy)
            assert np.array_equal(np.random.rand(3), first)
    finally:
        np.random.set_bit_generator(old)
