"""JSON descriptions of objects and functions, to notice that a resumed run is another one."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
from collections.abc import Callable
from typing import Any


def digest(text: str) -> str:
    """A short SHA-256."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]


def describe_object(value: Any) -> dict[str, Any]:
    """Class, length and own ``resume_fingerprint()`` of an object, or a function's code.

    Raises:
        TypeError: ``resume_fingerprint()`` is not JSON.
    """
    if inspect.isfunction(value) or inspect.ismethod(value) or isinstance(value, functools.partial):
        return describe_function(value)
    kind = type(value)
    described: dict[str, Any] = {"class": f"{kind.__module__}.{kind.__qualname__}"}
    if hasattr(value, "__len__"):
        described["length"] = len(value)
    own = getattr(value, "resume_fingerprint", None)
    if callable(own):
        fingerprint = own()
        try:
            described["fingerprint"] = json.loads(json.dumps(fingerprint, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"{kind.__qualname__}.resume_fingerprint() must return JSON values: {error}"
            ) from None
    return described


def describe_function(function: Callable[..., Any]) -> dict[str, Any]:
    """Name, source and the plain values a function was built with (defaults, closure)."""
    if isinstance(function, functools.partial):
        inner = describe_function(function.func)
        bound = [_plain(v) for v in function.args]
        named = {k: _plain(v) for k, v in function.keywords.items()}
        return {**inner, "bound": digest(json.dumps([bound, named], sort_keys=True))}
    inner_function = getattr(function, "__func__", function)
    try:
        source = inspect.getsource(inner_function)
    except (OSError, TypeError):
        source = ""
    cells = [_plain(c.cell_contents) for c in getattr(inner_function, "__closure__", None) or ()]
    defaults = [_plain(v) for v in getattr(inner_function, "__defaults__", None) or ()]
    return {
        "function": f"{inner_function.__module__}.{inner_function.__qualname__}",
        "code": digest(source + json.dumps([cells, defaults], sort_keys=True)),
    }


def _plain(value: Any) -> Any:
    """A value as JSON, or its class where it is not one (addresses never enter)."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return f"{type(value).__module__}.{type(value).__qualname__}"
