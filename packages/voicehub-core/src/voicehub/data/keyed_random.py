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
    tuples or lists of these. The encoding is injective: ``("ab", "c")`` and ``("a", "bc")`` give
    different seeds, and so do ``1``, ``1.0``, ``True`` and ``"1"``.

    Raises:
        TypeError: a part has another type.
    """
    digest = hashlib.blake2b(_encode(parts), digest_size=8).digest()
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
    np.random.seed((seed & 0xFFFFFFFF, seed >> 32))
    random.seed(seed)


@contextmanager
def preserved_global_state() -> Iterator[None]:
    """Restore the global CPU random state of torch, NumPy and Python on leaving the block."""
    import numpy as np
    import torch

    torch_state = torch.default_generator.get_state()
    numpy_state = np.random.get_state(legacy=False)
    python_state = random.getstate()
    try:
        yield
    finally:
        torch.default_generator.set_state(torch_state)
        np.random.set_state(numpy_state)
        random.setstate(python_state)


def _encode(part: Any) -> bytes:
    """Encode one part as a type tag, the length of its body, and the body."""
    if isinstance(part, bool):
        tag, body = b"b", b"1" if part else b"0"
    elif isinstance(part, str):
        tag, body = b"s", part.encode("utf-8", "surrogatepass")
    elif isinstance(part, float):
        tag, body = b"f", float(part).hex().encode()
    elif part is None:
        tag, body = b"n", b""
    elif isinstance(part, (bytes, bytearray)):
        tag, body = b"y", bytes(part)
    elif isinstance(part, (tuple, list)):
        tag, body = b"t", b"".join(map(_encode, part))
    else:
        try:
            tag, body = b"i", b"%d" % as_index(part)
        except TypeError:
            raise TypeError(
                f"a key of random draws holds a {type(part).__name__} ({part!r}); expected "
                "integers, strings, bytes, booleans, floats, None or tuples of these."
            ) from None
    return b"%b%d:%b" % (tag, len(body), body)
