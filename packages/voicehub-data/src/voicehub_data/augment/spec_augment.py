"""SpecAugment (Park et al. 2019): masks over time and frequency, drawn by key.

It replaces the masking built into pretrained models, which draws from NumPy's global state and
fails on clips shorter than a mask. Widths here are bounded by the clip's own valid frames.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from voicehub.data.keyed_random import SampleKey
from voicehub.errors import ConfigurationError
from voicehub_data.augment.base import draw_generator

Features = TypeVar("Features")
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class MaskSpans:
    """Half-open spans ``(start, stop)`` over frames and over bins; some may be empty."""

    time: tuple[Span, ...]
    frequency: tuple[Span, ...]


class SpecAugment:
    """Mask random spans of features ``(frames, bins)``, NumPy array or torch tensor.

    Args:
        time_masks: number of masks over time.
        time_mask_frames: their greatest width in frames; widths are uniform in [0, greatest].
        time_mask_max_fraction: bounds each to this share of the clip's valid frames.
        frequency_masks, frequency_mask_bins: the same over bins.
        mask_value: written into masked cells; 0 is the mean of normalised features.
        probability: share of draws that are masked.
    """

    def __init__(
        self,
        time_masks: int = 2,
        time_mask_frames: int = 40,
        time_mask_max_fraction: float = 0.2,
        frequency_masks: int = 2,
        frequency_mask_bins: int = 15,
        mask_value: float = 0.0,
        *,
        probability: float = 1.0,
        name: str = "spec_augment",
    ) -> None:
        counts = (time_masks, time_mask_frames, frequency_masks, frequency_mask_bins)
        if min(counts) < 0:
            raise ConfigurationError(f"{name}: numbers and widths of masks must be >= 0.")
        if not (0 <= time_mask_max_fraction <= 1 and 0 <= probability <= 1):
            raise ConfigurationError(f"{name}: fractions and probabilities must lie in [0, 1].")
        self.time_masks = time_masks
        self.time_mask_frames = time_mask_frames
        self.time_mask_max_fraction = time_mask_max_fraction
        self.frequency_masks = frequency_masks
        self.frequency_mask_bins = frequency_mask_bins
        self.mask_value = mask_value
        self.probability = probability
        self.name = name

    def spans(self, frames: int, bins: int, key: SampleKey, sample_id: str) -> MaskSpans:
        """Draw the masks of one clip of ``frames`` valid frames."""
        generator = draw_generator(key, sample_id, self.name)
        if generator.random() >= self.probability:
            return MaskSpans((), ())
        widest = min(self.time_mask_frames, int(self.time_mask_max_fraction * frames))
        time = tuple(_span(frames, widest, generator) for _ in range(self.time_masks))
        widest = min(self.frequency_mask_bins, bins)
        frequency = tuple(_span(bins, widest, generator) for _ in range(self.frequency_masks))
        return MaskSpans(time, frequency)

    def apply(
        self,
        x: Features,
        sample_rate: int,
        key: SampleKey,
        sample_id: str,
        *,
        num_frames: int | None = None,
    ) -> Features:
        """Return masked features of the same type.

        Args:
            x: ``(frames, bins)``; not modified.
            sample_rate: not used; here so that every transform is called alike.
            key, sample_id: name the draw.
            num_frames: valid frames where ``x`` is padded; padding is left alone.
        """
        array: Any = x
        frames = array.shape[0] if num_frames is None else int(num_frames)
        spans = self.spans(frames, array.shape[1], key, sample_id)
        out: Any = array.copy() if isinstance(array, np.ndarray) else array.clone()
        for start, stop in spans.time:
            out[start:stop] = self.mask_value
        for start, stop in spans.frequency:
            out[:frames, start:stop] = self.mask_value
        masked: Features = out
        return masked

    def fingerprint(self) -> dict[str, Any]:
        """JSON that identifies the settings, for a run's record."""
        return {"transform": type(self).__name__, **vars(self)}


def _span(length: int, widest: int, generator: np.random.Generator) -> Span:
    width = int(generator.integers(0, widest + 1))
    start = int(generator.integers(0, length - width + 1))
    return start, start + width
