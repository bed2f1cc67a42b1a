"""Encoders without their top layers, and what leaving one out saves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from voicehub.errors import ConfigurationError
from voicehub_hf.speech_encoders import SpeechEncoder


@dataclass(frozen=True)
class LayerSaving:
    """An encoder that ends at one of its hidden states.

    Attributes:
        stop: hidden state that is the last; so many layers are kept.
        parameters: of the encoder that is left.
        share_saved: parameters saved, over those of the whole encoder.
        layers_saved: layers that neither run nor train.
    """

    stop: int
    parameters: int
    share_saved: float
    layers_saved: int


def drop_top_layers(model: Any, encoder: SpeechEncoder, stop: int) -> int:
    """Remove the layers above hidden state ``stop``; return how many went.

    The hidden states that are left are what they were: a normalisation behind the last layer,
    which no lower hidden state has passed, goes too. ``config`` says how many layers are left.

    Raises:
        ConfigurationError: there are fewer layers.
    """
    layers = model.get_submodule(encoder.layers)
    total = len(layers)
    if stop > total:
        raise ConfigurationError(
            f"Hidden state {stop} was asked for; {encoder.architecture} has {total} layers, so the "
            f"highest is {total}."
        )
    if stop == total:
        return 0
    del layers[stop:]
    if normalises_at_end(model.config, encoder):
        remove_final_norm(model, encoder)
    for setting in ("num_hidden_layers", "encoder_layers"):
        if setting in vars(model.config):
            setattr(model.config, setting, stop)
    return total - stop


def remove_final_norm(model: Any, encoder: SpeechEncoder) -> None:
    """Let what leaves the last layer through as it is."""
    assert encoder.final_norm is not None
    parent, _, name = encoder.final_norm.rpartition(".")
    setattr(model.get_submodule(parent), name, nn.Identity())


def normalises_at_end(config: Any, encoder: SpeechEncoder) -> bool:
    """Whether the last hidden state alone passes a normalisation behind the layers.

    In encoders that normalise after each layer, the module of that name works before the first.
    """
    if encoder.final_norm is None:
        return False
    return encoder.model_type == "whisper" or bool(getattr(config, "do_stable_layer_norm", False))


def layer_savings(model: Any, encoder: SpeechEncoder) -> list[LayerSaving]:
    """Return what ending at each hidden state leaves, from the whole encoder down."""
    sizes = [
        sum(p.numel() for p in layer.parameters())
        for layer in model.get_submodule(encoder.layers).children()
    ]
    total = sum(p.numel() for p in model.parameters())
    rows, left = [], total
    for stop in range(len(sizes), -1, -1):
        saved = (total - left) / total
        rows.append(LayerSaving(stop, left, saved, len(sizes) - stop))
        left -= sizes[stop - 1]
    return rows
