"""What to change where a run does not fit, in the order in which it costs least."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from voicehub.planning.allocations import (
    ACTIVATIONS,
    BUCKETS,
    GRADIENTS,
    INPUTS,
    LOSS,
    OPTIMIZER,
    WEIGHTS,
)
from voicehub.planning.cards import CONTEXT_BYTES, FRAGMENTATION, GIB, Card
from voicehub.planning.sharing import SHARED

#: Settings that bound a micro-batch, as families name them, those that count seconds first.
_BOUNDS = ("max_padded_seconds", "max_batch_seconds", "max_batch_size")
#: Settings that say how deep a model is, as families and transformers name them.
_DEPTHS = ("num_hidden_layers", "num_layers", "layers", "n_layers", "depth", "num_blocks")
_GROWS_WITH_BATCH = (ACTIVATIONS, LOSS, INPUTS)
#: Beyond so many processes a run needs more than advice.
_MOST_PROCESSES = 1024


@dataclass(frozen=True)
class Situation:
    """A run that does not fit.

    Attributes:
        memory: bytes by kind of each process.
        alone: of a lone one, where nothing is shared out.
        room: bytes of tensors that there is room for.
        bf16: whether the device computes in bfloat16.
        half: whether the run computes in half precision already.
        config: its configuration as plain data.
        parts: bytes of the parameters that train, by the path of the module that holds them.
        processes: how many it is for.
    """

    memory: Mapping[str, int]
    alone: Mapping[str, int]
    room: float
    bf16: bool
    half: bool
    config: Mapping[str, Any]
    parts: Mapping[str, int]
    processes: int = 1

    @property
    def varying(self) -> int:
        """Bytes that grow with the batch."""
        return sum(self.memory.get(kind, 0) for kind in _GROWS_WITH_BATCH)

    @property
    def fixed(self) -> int:
        """All others."""
        return sum(self.memory.values()) - self.varying


def room_on(card: Card) -> float:
    """Bytes of tensors that a card has room for."""
    return (card.gib * GIB - CONTEXT_BYTES) / (1 + FRAGMENTATION)


def how_to_fit(situation: Situation) -> list[str]:
    """Return suggestions, the cheapest first."""
    return list(_suggestions(situation))


def _suggestions(now: Situation) -> Iterator[str]:
    varying, training = now.varying, now.config.get("training", {})
    if now.fixed < now.room and varying:
        yield _smaller_batches(now.config, (now.room - now.fixed) / varying)
    if not now.half and varying:
        kind = "training.bf16=true" if now.bf16 else "training.fp16=true"
        yield f"{kind}: about half of the {_gib(varying)} of activations."
    if not training.get("gradient_checkpointing") and now.memory.get(ACTIVATIONS):
        yield (
            "training.gradient_checkpointing=true: keeps what goes into each block alone, for "
            "about a third more computation."
        )
    states = now.memory.get(OPTIMIZER, 0) + now.memory.get(GRADIENTS, 0)
    if states:
        yield _train_less(now.parts, states)
    if now.memory.get(WEIGHTS, 0):
        yield _fewer_layers(now)
    yield from _more_processes(now)


def _smaller_batches(config: Mapping[str, Any], share: float) -> str:
    found = _setting(config, _BOUNDS)
    if found is None:
        return f"micro-batches of {share:.0%} of the size, and more gradient_accumulation_steps."
    key, value = found
    smaller = value * share
    shown = max(1, math.floor(smaller)) if isinstance(value, int) else f"{smaller:.3g}"
    return f"{key}={shown} (now {value}), and more gradient_accumulation_steps."


def _train_less(parts: Mapping[str, int], states: int) -> str:
    total = sum(parts.values())
    largest = max(parts, key=parts.__getitem__, default="")
    also = "or train low-rank adapters, where the family has them."
    if not largest or parts[largest] == total:
        return (
            f"train less (training.freeze): gradients and optimizer state of what trains take "
            f"{_gib(states)}; {also}"
        )
    saved = states * parts[largest] / total
    return (
        f'training.freeze=["{largest}"]: the head and what else is left train alone; gradients '
        f"and optimizer state of the frozen part, {_gib(saved)}, are not there. Or train low-rank "
        "adapters, where the family has them."
    )


def _fewer_layers(now: Situation) -> str:
    weights = _gib(now.memory[WEIGHTS])
    found = _setting(now.config.get("model") or {}, _DEPTHS, "model.")
    if found is None or found[1] < 2:
        return f"a smaller model, or one with fewer layers: its weights take {weights}."
    key, value = found
    over = max(now.room, 1.0) / max(1, now.fixed + now.varying)
    fewer = min(int(value) - 1, max(1, math.floor(value * over)))
    return f"{key}={fewer} (now {int(value)}): fewer layers; the weights take {weights}."


def _more_processes(now: Situation) -> Iterator[str]:
    shared = sum(now.alone.get(kind, 0) for kind in SHARED)
    own = sum(size for kind, size in now.memory.items() if kind not in (*SHARED, BUCKETS))
    if not shared or own >= now.room:
        return  # more processes share out neither activations nor a batch
    count = math.ceil(shared / (now.room - own))
    if now.processes < count <= _MOST_PROCESSES:
        yield (
            f"more processes: --nproc {count} with training.strategy=fsdp shares out weights, "
            f"gradients and optimizer state ({_gib(shared)})."
        )


def _setting(value: Any, names: tuple[str, ...], key: str = "") -> tuple[str, float] | None:
    """The first of the named settings that holds a number, and where it stands."""
    if not isinstance(value, Mapping):
        return None
    for name in names:
        held = value.get(name)
        if isinstance(held, (int, float)) and not isinstance(held, bool) and held:
            return f"{key}{name}", held
    for name, part in value.items():
        found = _setting(part, names, f"{key}{name}.")
        if found is not None:
            return found
    return None


def _gib(size: float) -> str:
    return f"{size / GIB:.2f} GiB"
