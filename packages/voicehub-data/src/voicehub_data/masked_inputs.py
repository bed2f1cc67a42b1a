"""SpecAugment over the inputs of a model."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from torch import Tensor

from voicehub.data.keyed_random import SampleKey
from voicehub_data.augment.spec_augment import SpecAugment


class FeatureInput(Protocol):
    """A named tuple that holds features.

    Attributes:
        rows: (frames, values).
        valid: leading frames that hold audio.
    """

    @property
    def rows(self) -> Tensor: ...
    @property
    def valid(self) -> int: ...
    def _replace(self, **changes: Any) -> Any: ...


Input = TypeVar("Input", bound=FeatureInput)


def masked(
    prepared: Input, masks: SpecAugment | None, sample_rate: int, key: SampleKey | None, name: str
) -> Input:
    """Return the input of one draw: masked where there are masks and a key.

    Args:
        prepared: of an utterance; not modified.
        masks: None for none.
        sample_rate: Hz of its audio.
        key, name: name the draw; without a key nothing is drawn.
    """
    if key is None or masks is None:
        return prepared
    rows = masks.apply(prepared.rows, sample_rate, key, name, num_frames=prepared.valid)
    changed: Input = prepared._replace(rows=rows)
    return changed
