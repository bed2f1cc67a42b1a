"""Parameter groups: weight decay applies to matrices, not to biases, norms and embeddings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch import nn

NamedParameters = Sequence[tuple[str, nn.Parameter]]


def undecayed(modules: Iterable[nn.Module]) -> set[int]:
    """Identities of parameters that must not decay, whatever their shape.

    Those of normalisation layers (by class name, so that RMSNorms of other libraries count) and
    of embeddings; by identity, so that a head tied to an embedding follows it.
    """
    identities: set[int] = set()
    for root in modules:
        for module in root.modules():
            if isinstance(module, nn.Embedding) or "Norm" in type(module).__name__:
                identities.update(id(p) for p in module.parameters(recurse=False))
    return identities


def decay_groups(
    named: NamedParameters, *, learning_rate: float, weight_decay: float, exempt: set[int]
) -> list[dict[str, Any]]:
    """Split one route's parameters into a decayed and an undecayed group.

    Args:
        named: the route's parameters, those included that a recipe unfreezes later in the run.
        learning_rate: base rate of both groups.
        weight_decay: decay of the first group; with 0 there is a single group.
        exempt: result of ``undecayed``.
    """
    if not weight_decay:
        parameters = [p for _, p in named]
        return [{"params": parameters, "lr": learning_rate, "weight_decay": 0.0, "name": "all"}]
    decayed = [p for n, p in named if decays(n, p, exempt)]
    kept = [p for n, p in named if not decays(n, p, exempt)]
    groups = [
        {"params": decayed, "lr": learning_rate, "weight_decay": weight_decay, "name": "decay"},
        {"params": kept, "lr": learning_rate, "weight_decay": 0.0, "name": "no_decay"},
    ]
    return [group for group in groups if group["params"]]


def decays(name: str, parameter: nn.Parameter, exempt: set[int]) -> bool:
    """Whether weight decay is for this parameter: a matrix that is no norm and no embedding."""
    is_bias = name == "bias" or name.endswith((".bias", "_bias"))
    return parameter.ndim > 1 and not is_bias and id(parameter) not in exempt
