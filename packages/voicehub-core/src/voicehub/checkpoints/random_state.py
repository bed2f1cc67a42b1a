"""The random state of a process: Python, NumPy, torch on CPU, CUDA and MPS."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from voicehub.errors import CheckpointMismatchError

#: Part of the state that ``rng_state.pth`` holds; the rest goes into ``training_runtime.pt``.
DEVICE_KEYS = ("cpu", "cuda", "mps")


def capture_random_state() -> dict[str, Any]:
    """Return the state of all global generators as tensors, arrays and plain values.

    Devices that this process has not used are left out: asking for their state would start them.
    """
    state: dict[str, Any] = {
        "cpu": torch.get_rng_state(),
        "python": _capture_python(),
        "numpy": np.random.get_state(legacy=False),
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["cuda"] = torch.cuda.get_rng_state_all()
    if torch.backends.mps.is_available():
        state["mps"] = torch.mps.get_rng_state()
    return state


def restore_random_state(state: dict[str, Any]) -> None:
    """Set all global generators to a captured state.

    Raises:
        CheckpointMismatchError: the state holds generators of devices that this process lacks.
    """
    cuda = state.get("cuda", [])
    available = torch.cuda.device_count() if cuda else 0
    if len(cuda) > available:
        raise CheckpointMismatchError(
            f"the random state holds {len(cuda)} CUDA generator(s), but {available} device(s) are "
            "available; resume on as many."
        )
    if "mps" in state and not torch.backends.mps.is_available():
        raise CheckpointMismatchError(
            "the random state holds an MPS generator, but no MPS device is available."
        )
    torch.set_rng_state(state["cpu"])
    _restore_python(state["python"])
    np.random.set_state(state["numpy"])
    for device, device_state in enumerate(cuda):
        torch.cuda.set_rng_state(device_state, device)
    if "mps" in state:
        torch.mps.set_rng_state(state["mps"])


@contextmanager
def preserved_random_state() -> Iterator[None]:
    """Restore every global generator on leaving the block, also after an exception."""
    state = capture_random_state()
    try:
        yield
    finally:
        restore_random_state(state)


def _capture_python() -> dict[str, Any]:
    version, words, gauss_next = random.getstate()
    return {
        "version": version,
        "words": np.array(words, dtype=np.uint32),
        "gauss_next": gauss_next,
    }


def _restore_python(state: dict[str, Any]) -> None:
    words = tuple(int(word) for word in state["words"].tolist())
    random.setstate((state["version"], words, state["gauss_next"]))
