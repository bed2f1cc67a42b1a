"""Masking of hidden states (SpecAugment, Park et al. 2019, as wav2vec 2.0 applies it).

The masking built into the models draws from NumPy's global state, so it depends on the number of
worker processes and cannot be resumed, and it raises on clips shorter than one mask. Here masks
come from outside, drawn by key, and a hook applies them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import nn

from voicehub.errors import DataError
from voicehub_hf.encoders import base_encoder, ctc_encoder, unwrapped


def disable_native_spec_augment(model: nn.Module) -> None:
    """Turn off the masking that the model would draw for itself.

    The learned mask vector, where the model has one, no longer takes part and stops requiring a
    gradient; :class:`HiddenStateMasking` turns it on again.
    """
    unwrapped(model).config.apply_spec_augment = False
    for module in unwrapped(model).modules():
        embedding = getattr(module, "masked_spec_embed", None)
        if embedding is not None:
            embedding.requires_grad_(False)


def disable_layer_drop(model: nn.Module) -> None:
    """Set layer drop to 0.

    Dropped layers get no gradient, which breaks gradient averaging between processes, and the
    draws of wav2vec2's adapter come from NumPy's global state.
    """
    for module in unwrapped(model).modules():
        if isinstance(getattr(module, "layerdrop", None), (int, float)):
            module.layerdrop = 0.0
        config: Any = getattr(module, "config", None)
        if getattr(config, "layerdrop", None):
            config.layerdrop = 0.0


class HiddenStateMasking:
    """Apply given masks to the hidden states that enter the encoder.

    Frames of the time mask become the model's learned mask vector, or zero where it has none;
    masked features become zero. Masks count for one training forward: it uses them and forgets
    them. Without masks, or in evaluation, nothing happens.

    Args:
        model: One of the five CTC models, also wrapped by peft.
        train_mask_vector: Let the learned mask vector train.
    """

    def __init__(self, model: nn.Module, *, train_mask_vector: bool = True) -> None:
        encoder = base_encoder(model)
        self._model, self._encoder = unwrapped(model), encoder
        self._time_mask: torch.Tensor | None = None
        self._feature_mask: torch.Tensor | None = None
        module = encoder.get_submodule(ctc_encoder(model).feature_module)
        if self.mask_vector is not None and train_mask_vector:
            self.mask_vector.requires_grad_(True)
        self._handle = module.register_forward_hook(self._apply)

    @property
    def mask_vector(self) -> nn.Parameter | None:
        """The model's learned replacement of masked frames, (hidden,), or ``None``."""
        vector: nn.Parameter | None = getattr(self._encoder, "masked_spec_embed", None)
        return vector

    def set_masks(
        self,
        time_mask: torch.Tensor | None,
        feature_mask: torch.Tensor | None = None,
        lengths: torch.Tensor | None = None,
    ) -> None:
        """Give the masks of the next training forward.

        Args:
            time_mask: (B, T), bool, True where a frame is masked; ``None`` for no mask. T is
                that of :func:`voicehub_hf.lengths.hidden_lengths`.
            feature_mask: (B, H), bool, True where a hidden feature is masked in every frame.
            lengths: (B,), valid frames; frames behind them are never masked.
        """
        if time_mask is not None and lengths is not None:
            frames = torch.arange(time_mask.shape[1], device=time_mask.device)
            time_mask = time_mask & (frames < lengths.to(time_mask.device)[:, None])
        self._time_mask, self._feature_mask = time_mask, feature_mask

    def remove(self) -> None:
        """Take the hook off the model."""
        self._handle.remove()

    def _apply(self, _: nn.Module, __: Any, output: Any) -> Any:
        time_mask, feature_mask = self._time_mask, self._feature_mask
        self._time_mask = self._feature_mask = None
        # The whole model's mode decides: a frozen front end is in evaluation mode while it trains.
        if not self._model.training or (time_mask is None and feature_mask is None):
            return None
        hidden = output[0] if isinstance(output, tuple) else output
        masked = self._masked(hidden, time_mask, feature_mask)
        return (masked, *output[1:]) if isinstance(output, tuple) else masked

    def _masked(
        self,
        hidden: torch.Tensor,
        time_mask: torch.Tensor | None,
        feature_mask: torch.Tensor | None,
    ) -> torch.Tensor:
        batch, frames, width = hidden.shape
        if time_mask is not None:
            _check_shape("time", time_mask, (batch, frames))
            fill = hidden.new_zeros(()) if self.mask_vector is None else self.mask_vector
            mask = time_mask.to(hidden.device)[:, :, None]
            hidden = torch.where(mask, fill.to(hidden.dtype), hidden)
        if feature_mask is not None:
            _check_shape("feature", feature_mask, (batch, width))
            hidden = hidden.masked_fill(feature_mask.to(hidden.device)[:, None, :], 0.0)
        return hidden


class SpanSource(Protocol):
    """What draws spans, for example ``voicehub_data.augment.SpecAugment``."""

    def spans(self, frames: int, bins: int, key: Any, sample_id: str) -> Any:
        """Return an object with ``time`` and ``frequency``: half-open spans."""


def draw_masks(
    source: SpanSource,
    lengths: Sequence[int] | torch.Tensor,
    hidden_size: int,
    keys: Sequence[Any],
    ids: Sequence[str],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw the masks of a batch, each sample's by its own key.

    Args:
        source: Draws the spans; ``voicehub_data.augment.SpecAugment``.
        lengths: Valid frames of each sample, at the hidden states' rate.
        hidden_size: Width of the hidden states.
        keys, ids: ``SampleKey`` and id of each sample.

    Returns:
        Time mask (B, longest length) and feature mask (B, hidden_size), bool, on the CPU.
    """
    counts = [int(length) for length in lengths]
    time_mask = torch.zeros(len(counts), max(counts), dtype=torch.bool)
    feature_mask = torch.zeros(len(counts), hidden_size, dtype=torch.bool)
    for i, (frames, key, sample) in enumerate(zip(counts, keys, ids, strict=True)):
        drawn = source.spans(frames, hidden_size, key, sample)
        for start, stop in drawn.time:
            time_mask[i, start:stop] = True
        for start, stop in drawn.frequency:
            feature_mask[i, start:stop] = True
    return time_mask, feature_mask


def _check_shape(name: str, mask: torch.Tensor, expected: tuple[int, int]) -> None:
    if tuple(mask.shape) != expected or mask.dtype != torch.bool:
        raise DataError(
            f"The {name} mask is {mask.dtype} of shape {tuple(mask.shape)}; the hidden states of "
            f"this batch need torch.bool of shape {expected}."
        )
