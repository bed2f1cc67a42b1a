"""Weight normalisation of the decoder: there in training, gone in what is exported.

Published snapshots and transformers' ``VitsModel`` hold plain weights in the decoder. Training
splits them into ``w = g v / |v|`` with ``g = |w|``, which changes nothing; the export computes w
again. Flow and posterior encoder keep theirs: it is part of their state dict.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm


def decoder_convolutions(decoder: Any) -> list[nn.Module]:
    """The layers that training normalises: upsampling and residual blocks."""
    found = list(decoder.upsampler)
    for block in decoder.resblocks:
        found += [*block.convs1, *block.convs2]
    return found


def add_weight_norm(decoder: Any) -> None:
    """Normalise the decoder's weights; those that already are stay."""
    for layer in decoder_convolutions(decoder):
        if not parametrize.is_parametrized(layer, "weight"):
            weight_norm(layer)


def remove_weight_norm(decoder: Any) -> None:
    """Put the plain weights back, in the decoder alone."""
    for layer in decoder_convolutions(decoder):
        if parametrize.is_parametrized(layer, "weight"):
            parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)


def plain_state(model: Any) -> dict[str, Tensor]:
    """The state dict of a ``VitsModel`` with plain weights in the decoder; the model stays.

    Not by removing them from a copy: parametrized modules share their class with their copies,
    and the removal would reach into the original.
    """
    state: dict[str, Tensor] = dict(model.state_dict())
    names = {layer: name for name, layer in model.named_modules()}
    for layer in decoder_convolutions(model.decoder):
        if not parametrize.is_parametrized(layer, "weight"):
            continue
        prefix = names[layer]
        for key in [key for key in state if key.startswith(f"{prefix}.parametrizations.")]:
            del state[key]
        state[f"{prefix}.weight"] = layer.weight.detach()
    return state
