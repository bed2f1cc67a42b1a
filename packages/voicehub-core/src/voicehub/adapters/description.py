"""JSON descriptions of routes and module graphs, for manifests and the resume signature."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from torch import nn

from voicehub.adapters.routes import NamedParameters

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def describe_routes(routes: Mapping[str, NamedParameters]) -> dict[str, Any]:
    """Return tensors, parameters and a digest of names and shapes, by route."""
    described = {}
    for name, parameters in routes.items():
        lines = "\n".join(f"{key} {tuple(value.shape)} {value.dtype}" for key, value in parameters)
        described[name] = {
            "tensors": len(parameters),
            "parameters": sum(value.numel() for _, value in parameters),
            "digest": hashlib.sha256(lines.encode()).hexdigest()[:16],
        }
    return described


def describe_graph(module: nn.Module) -> dict[str, int]:
    """Return how many leaf modules of each kind and setting there are.

    A kind is the module's own one-line text, for example ``Dropout(p=0.1, inplace=False)``, so
    that a changed dropout rate or stride shows by name.
    """
    counts: Counter[str] = Counter()
    for part in module.modules():
        if next(part.children(), None) is None:
            counts[f"{_kind(part)}({_ADDRESS.sub('', part.extra_repr())})"] += 1
    return dict(sorted(counts.items()))


def _kind(part: nn.Module) -> str:
    """Name of a module's class, also where its parameters are shared out to processes."""
    names = [kind.__name__ for kind in type(part).__mro__]
    return names[2] if names[1] == "FSDPModule" else names[0]
