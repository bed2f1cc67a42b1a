"""Running a network on a batch, apart where padding would change its outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

Network = Callable[[dict[str, Any]], Any]


def run_together(network: Network, inputs: Mapping[str, Any]) -> tuple[Tensor, Tensor | None]:
    """Return logits (batch, frames, tokens) and those read half-way, where there are any."""
    output = network(dict(inputs))
    return output.logits, getattr(output, "intermediate_logits", None)


def run_apart(
    network: Network,
    inputs: Mapping[str, Tensor],
    input_lengths: Sequence[int],
    before: Callable[[list[int], int], None] | None = None,
) -> Tensor:
    """Run utterances of equal length together and others apart, and pad the logits.

    Statistics over time (group normalisation) and convolutions without a mask see no padding this
    way: each utterance's outputs are those it has alone.

    Args:
        network: takes keyword arguments as a mapping and returns an object with ``logits``.
        inputs: tensors (batch, input length, ...), padded on the right.
        input_lengths: unpadded length of each row.
        before: told the positions of a group and its length before it runs.

    Returns:
        (batch, most frames, tokens), zero behind an utterance's frames.
    """
    groups: dict[int, list[int]] = {}
    for position, length in enumerate(input_lengths):
        groups.setdefault(length, []).append(position)
    pieces: list[tuple[list[int], Tensor]] = []
    for length, positions in groups.items():
        if before is not None:
            before(positions, length)
        part = {name: tensor[positions, :length] for name, tensor in inputs.items()}
        pieces.append((positions, network(part).logits))
    if len(pieces) == 1:
        return pieces[0][1]
    frames = max(logits.shape[1] for _, logits in pieces)
    order = [position for positions, _ in pieces for position in positions]
    padded = [
        torch.nn.functional.pad(logits, (0, 0, 0, frames - logits.shape[1])) for _, logits in pieces
    ]
    back = sorted(range(len(order)), key=order.__getitem__)
    return torch.cat(padded)[back]
