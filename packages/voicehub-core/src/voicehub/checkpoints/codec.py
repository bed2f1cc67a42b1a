"""Nested Python state as structures that ``torch.load(weights_only=True)`` reads.

Tensors, numbers, strings, ``None``, lists, tuples and dicts stay as they are, so an optimizer's
state looks natural when loaded by hand. NumPy arrays and scalars, bytes, complex numbers, sets and
deques become tagged dicts. Anything that would need code to come back is refused when saving.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy as np
import torch

from voicehub.errors import CheckpointError

_TAG = "$voicehub"
_Copy = Callable[[torch.Tensor], torch.Tensor]


def encode_state(
    state: Any, where: str = "state", copy: _Copy | None = None, _memo: dict[int, Any] | None = None
) -> Any:
    """Return ``state`` in plain types; every tensor passes through ``copy``.

    Dict subclasses become dicts, named tuples tuples, and string or integer enumerations their
    values. A tensor that occurs twice is copied once.

    Raises:
        CheckpointError: a value, named by its path, cannot be stored without code.
    """
    memo = {} if _memo is None else _memo
    if state is None or type(state) in (bool, int, float, str):
        return state
    if isinstance(state, torch.Tensor):
        return _encode_tensor(state, copy, memo)
    if isinstance(state, np.ndarray):
        return _encode_array(state, where)
    if isinstance(state, np.generic):
        return {_TAG: "numpy-scalar", "value": _encode_array(np.asarray(state), where)}
    if isinstance(state, complex):
        return {_TAG: "complex", "value": (state.real, state.imag)}
    if isinstance(state, (bytes, bytearray)):
        return {_TAG: "bytes", "value": torch.tensor(list(state), dtype=torch.uint8)}
    if isinstance(state, dict):
        pairs = {
            _encode_key(key, where): encode_state(item, f"{where}[{key!r}]", copy, memo)
            for key, item in state.items()
        }
        return {_TAG: "dict", "value": pairs} if _TAG in pairs else pairs
    if isinstance(state, (list, tuple)):
        items = [encode_state(v, f"{where}[{i}]", copy, memo) for i, v in enumerate(state)]
        return tuple(items) if isinstance(state, tuple) else items
    if isinstance(state, (set, frozenset)):
        kind = "set" if isinstance(state, set) else "frozenset"
        # Sorted by repr: equal sets give equal files in every process.
        values = [encode_state(v, f"{where}{{{v!r}}}", copy, memo) for v in sorted(state, key=repr)]
        return {_TAG: kind, "value": values}
    if isinstance(state, deque):
        values = [encode_state(v, f"{where}[{i}]", copy, memo) for i, v in enumerate(state)]
        return {_TAG: "deque", "value": values, "maxlen": state.maxlen}
    return _encode_plain_subclass(state, where)


def decode_state(state: Any) -> Any:
    """Undo ``encode_state``.

    Raises:
        ValueError: a tag is unknown (the file comes from a newer version).
    """
    if isinstance(state, dict):
        if _TAG not in state:
            return {key: decode_state(item) for key, item in state.items()}
        kind, value = state[_TAG], state["value"]
        if kind == "dict":
            return {key: decode_state(item) for key, item in value.items()}
        if kind == "numpy":
            return value.numpy().view(np.dtype(state["dtype"])).reshape(state["shape"])
        if kind == "numpy-scalar":
            return decode_state(value)[()]
        if kind == "complex":
            return complex(*value)
        if kind == "bytes":
            return bytes(value.tolist())
        if kind == "deque":
            return deque(map(decode_state, value), maxlen=state["maxlen"])
        if kind in ("set", "frozenset"):
            return (set if kind == "set" else frozenset)(map(decode_state, value))
        raise ValueError(f"unknown kind of stored value {kind!r}")
    if isinstance(state, list):
        return [decode_state(item) for item in state]
    if isinstance(state, tuple):
        return tuple(decode_state(item) for item in state)
    return state


def _encode_tensor(tensor: torch.Tensor, copy: _Copy | None, memo: dict[int, Any]) -> Any:
    known = memo.get(id(tensor))
    if known is None:
        plain = tensor.detach()
        # The original stays in the memo: its id may not be reused while the state is walked.
        memo[id(tensor)] = known = (copy(plain) if copy is not None else plain, tensor)
    return known[0]


def _encode_array(array: np.ndarray[Any, Any], where: str) -> dict[str, Any]:
    if array.dtype.kind not in "biufc":
        raise CheckpointError(
            f"{where} is a NumPy array of {array.dtype}, which cannot be stored; use numbers."
        )
    plain = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    content = torch.from_numpy(plain.reshape(-1).view(np.uint8).copy())
    return {
        _TAG: "numpy",
        "value": content,
        "dtype": plain.dtype.str,
        "shape": tuple(array.shape),
    }


def _encode_key(key: Any, where: str) -> Any:
    if isinstance(key, tuple):
        return tuple(_encode_key(part, where) for part in key)
    plain = encode_state(key, f"key {key!r} of {where}")
    if isinstance(plain, (dict, list, torch.Tensor)):
        raise CheckpointError(
            f"{where} has the key {key!r} of type {type(key).__name__}, which cannot be stored."
        )
    return plain


def _encode_plain_subclass(state: Any, where: str) -> Any:
    value = state.value if isinstance(state, Enum) else state
    if isinstance(state, str):
        return str.__str__(value)
    if isinstance(state, int):
        return int(value)
    if isinstance(state, float):
        return float(value)
    if isinstance(state, (torch.dtype, torch.device)):
        return state
    raise CheckpointError(
        f"{where} is a {type(state).__module__}.{type(state).__qualname__}, which cannot be stored "
        "without code; return tensors, numbers, strings and containers of these from state_dict()."
    )
