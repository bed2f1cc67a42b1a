"""Taking over weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from voicehub.models.tensor_files import require_same_tensors
from voicehub_xvector.class_map import Remapping

_PROTOTYPES = "loss.weight"


def load_into(network: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Copy all tensors but a pretrained encoder's, all or nothing.

    Raises:
        CheckpointMismatchError: names or shapes differ.
    """
    own = _own_state(network)
    require_same_tensors(own, tensors, path)
    with torch.no_grad():
        for name, tensor in tensors.items():
            own[name].copy_(tensor)


def copy_weights(
    network: nn.Module, tensors: Mapping[str, Tensor], remapping: Remapping, source: Path
) -> list[str]:
    """Take over the weights of an earlier model, prototypes by speaker.

    Args:
        network: of the new model.
        tensors: of the earlier one.
        remapping: from its classes to the new ones.
        source: where it lies, for messages.

    Returns:
        What is worth telling.

    Raises:
        CheckpointMismatchError: names or shapes of anything but the prototypes differ.
    """
    own = _own_state(network)
    others = {name: t for name, t in own.items() if name != _PROTOTYPES}
    given = {name: t for name, t in tensors.items() if name != _PROTOTYPES}
    require_same_tensors(others, given, source)
    notes = []
    with torch.no_grad():
        for name, tensor in given.items():
            others[name].copy_(tensor)
        prototypes, old = own[_PROTOTYPES], tensors[_PROTOTYPES]
        new_count = len(remapping.pairs) + len(remapping.new)
        old_count = len(remapping.pairs) + len(remapping.dropped)
        if prototypes.shape[0] // new_count != old.shape[0] // old_count:
            notes.append("The number of sub-centres differs: all prototypes are new.")
        elif remapping.pairs:
            before = old.view(old_count, -1, old.shape[-1])
            after = prototypes.view(new_count, -1, prototypes.shape[-1])
            sources, targets = zip(*remapping.pairs, strict=True)
            after[list(targets)] = before[list(sources)].to(after.dtype)
    return notes


def _own_state(network: nn.Module) -> dict[str, Tensor]:
    state = network.state_dict()
    return {name: t for name, t in state.items() if not name.startswith("encoder.")}
