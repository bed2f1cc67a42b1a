"""Datasets of every kind that the loader knows, and comparison of batches bit by bit."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from voicehub.data.keyed_random import numpy_generator


class KeyedNoise(Dataset):
    """Draws from generators keyed by the sample's key, as our own datasets do."""

    def __init__(self, size: int = 23) -> None:
        self.size = size
        self.read: list[int] = []

    def __len__(self) -> int:
        return self.size

    def sample_id(self, index: int) -> str:
        return f"utt-{index:02d}"

    def get_item(self, index, key):
        self.read.append(index)
        noise = numpy_generator(*key, self.sample_id(index), "noise").standard_normal(3)
        return {"id": self.sample_id(index), "x": torch.from_numpy(noise), "key": key}


class GlobalNoise(Dataset):
    """Draws from every global generator, as most published datasets do."""

    def __init__(self, size: int = 23) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index):
        # A varying number of draws: no sample may depend on those before it.
        torch.rand(index % 3)
        np.random.rand(index % 4)
        return {
            "torch": torch.randn(2),
            "numpy": np.random.randn(3),
            "python": random.random(),
            "gauss": random.gauss(0, 1),
            "index": index,
        }


class Plain(Dataset):
    """Draws nothing, but says so only by its ``deterministic`` attribute."""

    deterministic = True

    def __init__(self, size: int = 23) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index):
        return {"x": torch.full((2,), float(index))}


@pytest.fixture(params=[KeyedNoise, GlobalNoise, Plain], ids=["keyed", "global", "pure"])
def dataset(request):
    return request.param()


@pytest.fixture
def keyed_noise():
    return KeyedNoise


@pytest.fixture
def global_noise():
    return GlobalNoise


@pytest.fixture
def assert_equal():
    return _assert_equal


@pytest.fixture
def random_state():
    """Return a function that reads all global states, to compare before and after."""
    return _random_state


def _assert_equal(left, right):
    assert type(left) is type(right)
    if isinstance(left, torch.Tensor):
        assert left.dtype == right.dtype
        assert torch.equal(left, right)
    elif isinstance(left, dict):
        assert list(left) == list(right)
        for name in left:
            _assert_equal(left[name], right[name])
    elif isinstance(left, (list, tuple)):
        assert len(left) == len(right)
        for a, b in zip(left, right, strict=True):
            _assert_equal(a, b)
    else:
        assert left == right


def _random_state():
    numpy_state = np.random.get_state(legacy=False)
    return (
        torch.get_rng_state().tolist(),
        random.getstate(),
        numpy_state["state"]["key"].tolist(),
        numpy_state["state"]["pos"],
        numpy_state["has_gauss"],
        numpy_state["gauss"],
    )
