"""Random draws that depend on what is drawn for, never on who draws or when.

Every random choice about a sample comes from a generator whose seed is a hash of a key such as
(seed, epoch, draw, sample id, transform). The outcome is then the same in any number of worker
processes, on any rank, and after a resume that jumps into the middle of an epoch.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from operator import index as as_index
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import torch


#: Spare sources for NumPy's global functions; empty while a nested block uses one.
_numpy_sources: list[np.random.MT19937] = []

_EXACT = frozenset({int, str, bool, float, bytes, type(None)})


class SampleKey(NamedTuple):
    """Names one draw of one sample.

    Attributes:
        seed: the data seed of the run.
        epoch: zero-based epoch.
        draw: zero-based position of this draw in the epoch's global plan, the same for every
            number of ranks; it separates two draws of one sample within an epoch.
        index: position of the sample in the dataset.
    """

    seed: int
    epoch: int
    draw: int
    index: int  # type: ignore[assignment]  # shadows tuple.index, which nobody needs here


def derive_seed(*parts: object) -> int:
    """Hash a key to a seed of 63 bits with BLAKE2b.

    Parts may be integers (NumPy's too), strings, bytes, booleans, floats, ``None`` and nested
    tuples or lists of these. The key is hashed as its Python literal in ASCII, which is the same
    for every Python version and different for different keys: ``("ab", "c")`` and ``("a", "bc")``
    give different seeds, and so do ``1``, ``1.0``, ``True`` and ``"1"``.

    Raises:
        TypeError: a part has another type.
    """
    digest = hashlib.blake2b(ascii(_canonical(parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def numpy_generator(*parts: object) -> np.random.Generator:
    """Return a NumPy generator (PCG64) seeded by the key ``parts``."""
    import numpy as np

    return np.random.Generator(np.random.PCG64(derive_seed(*parts)))


def torch_generator(*parts: object, device: str = "cpu") -> torch.Generator:
    """Return a torch generator on ``device`` seeded by the key ``parts``."""
    import torch

    return torch.Generator(device).manual_seed(derive_seed(*parts))


def seed_global_state(seed: int) -> None:
    """Seed the global CPU generators of torch, NumPy and Python with ``seed`` (63 bits).

    CUDA generators are left alone: ``torch.manual_seed`` would queue work for every device, and a
    dataset has no business drawing there.
    """
    import numpy as np
    import torch

    torch.default_generator.manual_seed(seed)
    # NumPy takes 32 bits at once; an array of two words costs five times as much.
    np.random.seed(seed & 0xFFFFFFFF)
    random.seed(seed)


@contextmanager
def preserved_global_state() -> Iterator[None]:
    """Restore the global CPU random state of torch, NumPy and Python on leaving the block.

    Seed inside before drawing: NumPy's state is set aside, not continued.
    """
    import numpy as np
    import torch

    torch_state = torch.default_generator.get_state()
    numpy_state = np.random.get_state(legacy=False)
    numpy_source = np.random.get_bit_generator()  # type: ignore[attr-defined]
    python_state = random.getstate()
    # Setting NumPy's state copies it word by word; exchanging its source costs nothing. The
    # sources are pooled, since making one is dear.
    spare = _numpy_sources.pop() if _numpy_sources else np.random.MT19937(0)
    np.random.set_bit_generator(spare)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.default_generator.set_state(torch_state)
        random.setstate(python_state)
        np.random.set_bit_generator(numpy_source)  # type: ignore[attr-defined]
        _numpy_sources.append(spare)
        if numpy_state["has_gauss"]:  # held beside the source, and dropped by exchanging it
            np.random.set_state(numpy_state)


def _canonical(parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the key with every part of an exact built-in type."""
    if _EXACT.issuperset(map(type, parts)):
        return parts
    return tuple(part if type(part) in _EXACT else _as_literal(part) for part in parts)


def _as_literal(part: Any) -> Any:
    if isinstance(part, (tuple, list)):
        return _canonical(tuple(part))
    if isinstance(part, str):
        return str.__str__(part)
    if isinstance(part, float):
        return float(part)
    if isinstance(part, bytearray):
        return bytes(part)
    try:
        return as_index(part)
    except TypeError:
        raise TypeError(
            f"a key of random draws holds a {type(part).__name__} ({part!r}); expected integers, "
            "strings, bytes, booleans, floats, None or tuples of these."
        ) from None
