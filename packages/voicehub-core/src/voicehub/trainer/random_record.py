"""The state of every global random generator, cheap enough to be taken before each update."""

from __future__ import annotations

import ctypes
import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

#: Bytes of the state of NumPy's MT19937: 624 words and the position among them.
_MT19937_BYTES = 624 * 4 + 4


@dataclass(frozen=True)
class RandomStates:
    """States as the generators give them; ``plain`` makes them storable."""

    torch: list[Tensor]  # of the CPU, and of the current CUDA device where a run uses one
    numpy: dict[str, Any]
    python: tuple[Any, ...]

    def plain(self) -> dict[str, Any]:
        """As tensors, arrays and JSON values."""
        version, words, gauss_next = self.python
        return {
            "torch": self.torch,
            "numpy": self.numpy,
            "python": {
                "version": version,
                "words": np.array(words, dtype=np.uint32),
                "gauss_next": gauss_next,
            },
        }

    @classmethod
    def from_plain(cls, values: dict[str, Any]) -> RandomStates:
        """The inverse of ``plain``."""
        python = values["python"]
        words = tuple(int(word) for word in python["words"].tolist())
        return cls(
            values["torch"], values["numpy"], (python["version"], words, python["gauss_next"])
        )

    def restore(self, device: str) -> None:
        """Set the generators of this process to these states."""
        random.setstate(self.python)
        np.random.set_state(self.numpy)
        for generator, state in zip(_generators(device), self.torch, strict=False):
            generator.set_state(state)


class RandomRecord:
    """Takes states again and again. NumPy's costs 20 microseconds and is kept while it stands."""

    def __init__(self, device: str) -> None:
        self._generators = _generators(device)
        self._source: Any = None
        self._bytes = b""
        self._numpy: dict[str, Any] = {}

    def take(self) -> RandomStates:
        """The states now."""
        return RandomStates(
            [generator.get_state() for generator in self._generators],
            self._numpy_state(),
            random.getstate(),
        )

    def _numpy_state(self) -> dict[str, Any]:
        source = np.random.get_bit_generator()  # type: ignore[attr-defined]
        content = _content(source) if isinstance(source, np.random.MT19937) else b""
        # A second normal number that was drawn beside the first is held apart from the source,
        # and taking it changes nothing there: with one in store the comparison says nothing.
        comparable = content and source is self._source and not self._numpy["has_gauss"]
        if comparable and content == self._bytes:
            return self._numpy
        self._source, self._bytes = source, content
        self._numpy = np.random.get_state(legacy=False)
        return self._numpy


def _content(source: np.random.MT19937) -> bytes:
    return ctypes.string_at(source.ctypes.state_address, _MT19937_BYTES)


def _generators(device: str) -> list[torch.Generator]:
    found = [torch.default_generator]
    if device == "cuda":
        found.append(torch.cuda.default_generators[torch.cuda.current_device()])
    return found
