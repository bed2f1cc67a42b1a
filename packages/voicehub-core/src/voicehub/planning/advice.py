"""What to change where a run does not fit, in the order in which it costs least."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from voicehub.planning.allocations import ACTIVATIONS, GRADIENTS, INPUTS, LOSS, OPTIMIZER, WEIGHTS
from voicehub.planning.cards import CONTEXT_BYTES, FRAGMENTATION, GIB, Card

#: Settings that bound a micro-batch, as families name them, by what they count.
_BOUNDS = ("max_padded_seconds", "max_batch_seconds", "max_batch_size")
_GROWS_WITH_BATCH = (ACTIVATIONS, LOSS, INPUTS)


def how_to_fit(
    memory: Mapping[str, int], card: Card, config: Mapping[str, Any], *, half: bool
) -> list[str]:
    """Return suggestions, the cheapest first.

    Args:
        memory: bytes by kind of one process.
        card: what it has to fit on.
        config: the run's configuration as plain data.
        half: whether it computes in half precision already.
    """
    return list(_suggestions(memory, card, config, half))


def _suggestions(
    memory: Mapping[str, int], card: Card, config: Mapping[str, Any], half: bool
) -> Iterator[str]:
    room = (card.gib * GIB - CONTEXT_BYTES) / (1 + FRAGMENTATION)
    varying = sum(memory.get(kind, 0) for kind in _GROWS_WITH_BATCH)
    fixed = sum(memory.values()) - varying
    if fixed < room and varying:
        yield _smaller_batches(config, (room - fixed) / varying)
    training = config.get("training", {})
    if not half and varying:
        kind = "training.bf16=true" if card.bf16 else "training.fp16=true"
        yield f"{kind}: about half of the {_gib(varying)} of activations."
    if not training.get("gradient_checkpointing") and memory.get(ACTIVATIONS):
        yield (
            "training.gradient_checkpointing=true: keeps what goes into each block alone, for "
            "about a third more computation."
        )
    states = memory.get(OPTIMIZER, 0) + memory.get(GRADIENTS, 0)
    if states:
        yield (
            f"train less: gradients and optimizer state of what trains take {_gib(states)}. "
            "Freeze the encoder (training.freeze) or train low-rank adapters, where the family "
            "has them."
        )
    if memory.get(WEIGHTS, 0) > room / 2:
        yield f"a smaller model: the weights alone take {_gib(memory[WEIGHTS])}."
    if fixed > 0:
        yield (
            "more processes: training.strategy=fsdp shares out weights, gradients and optimizer "
            f"state ({_gib(fixed)}) over --nproc cards."
        )


def _smaller_batches(config: Mapping[str, Any], share: float) -> str:
    found = _bound(config, "")
    if found is None:
        return f"micro-batches of {share:.0%} of the size, and more gradient_accumulation_steps."
    key, value = found
    smaller = value * share
    shown = max(1, math.floor(smaller)) if isinstance(value, int) else f"{smaller:.3g}"
    return f"{key}={shown} (now {value}), and more gradient_accumulation_steps."


def _bound(value: Any, key: str) -> tuple[str, float] | None:
    """The setting that bounds a micro-batch, the one that counts seconds before others."""
    if not isinstance(value, Mapping):
        return None
    for name in _BOUNDS:
        if isinstance(value.get(name), (int, float)) and value[name]:
            return f"{key}{name}", value[name]
    for name, part in value.items():
        found = _bound(part, f"{key}{name}.")
        if found is not None:
            return found
    return None


def _gib(size: float) -> str:
    return f"{size / GIB:.2f} GiB"
