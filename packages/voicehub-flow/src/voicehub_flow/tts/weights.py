"""Weights into a network whose tables may have grown."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from voicehub.data.keyed_random import torch_generator
from voicehub.errors import CheckpointMismatchError
from voicehub_flow.tts.network import DiT
from voicehub_flow.tts.published import SPEAKER_TABLE, TEXT_TABLE

#: Tables that may have more rows than the weights; new rows stand behind the old ones.
GROWING = (TEXT_TABLE, SPEAKER_TABLE)
_SHOWN = 5


def take_over(module: DiT, weights: Mapping[str, Tensor], source: str, *, seed: int) -> list[str]:
    """Load weights; rows that they lack are drawn around the mean of those they have.

    A speaker table that they lack altogether starts at zero, which leaves the model as it was.

    Args:
        module: to load into.
        weights: by our names.
        source: where they come from, for messages.
        seed: of what is drawn.

    Returns:
        What is new, for the log.

    Raises:
        CheckpointMismatchError: names or shapes differ; nothing was changed.
    """
    own = module.state_dict()
    taken: dict[str, Tensor] = {}
    differing, notes = [], []
    for name in own.keys() | weights.keys():
        mine, given = own.get(name), weights.get(name)
        if mine is not None and given is not None and mine.shape == given.shape:
            taken[name] = given
        elif name == SPEAKER_TABLE and mine is not None and given is None:
            taken[name] = torch.zeros_like(mine)
            notes.append(f"The speaker table ({len(mine) - 1} speakers) is new and starts at zero.")
        elif name in GROWING and mine is not None and given is not None and _grew(mine, given):
            taken[name] = grown(given, len(mine), seed=seed)
            notes.append(f"{len(mine) - len(given)} rows of {name} are new.")
        else:
            differing.append(f"  - {name}: this model {_shape(mine)}, the weights {_shape(given)}")
    if differing:
        more = len(differing) - _SHOWN
        text = "\n".join(sorted(differing)[:_SHOWN]) + (f"\n  ... {more} more" if more > 0 else "")
        raise CheckpointMismatchError(
            f"The weights of {source} do not fit this model; {len(differing)} tensors differ:\n"
            f"{text}"
        )
    module.load_state_dict(taken)
    return notes


def grown(table: Tensor, rows: int, *, seed: int) -> Tensor:
    """A table with further rows, drawn from the normal distribution of those it has."""
    generator = torch_generator("flow", "new rows", seed)
    noise = torch.randn(rows, table.shape[1], generator=generator)[len(table) :].to(table)
    known = table[1:] if len(table) > 2 else table  # the filler is no symbol
    deviation = known.std(0) if len(known) > 1 else torch.zeros_like(known[0])
    return torch.cat((table, known.mean(0) + deviation * noise))


def _grew(own: Tensor, given: Tensor) -> bool:
    return own.shape[1:] == given.shape[1:] and len(own) > len(given)


def _shape(tensor: Tensor | None) -> str:
    return "has none" if tensor is None else str(tuple(tensor.shape))
