"""Clips of several sets, one after the other, as tensors of one sample."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor

from voicehub.data.keyed_random import SampleKey
from voicehub.errors import DataError
from voicehub_flow.store import layout
from voicehub_flow.store.sets import ClipSet


class StoreItem(NamedTuple):
    """One clip; floating tensors are float32.

    Attributes:
        id: of the set and the clip.
        mean, std: (frames, channels) of the latent's distribution; valid frames alone.
        text: (tokens, channels).
        clip, sync: features of the video, or None where it is absent.
        caption: label or caption.
        key: names the draw; None outside training.
    """

    id: str
    mean: Tensor
    std: Tensor
    text: Tensor
    clip: Tensor | None
    sync: Tensor | None
    caption: str
    key: SampleKey | None


class StoreDataset:
    """The clips of sets, read when asked for.

    Args:
        sets: one after the other.
        check: compare every clip that is read with its checksums.
    """

    def __init__(self, sets: Sequence[ClipSet], *, check: bool = True) -> None:
        self.sets, self.check = tuple(sets), check
        self._ends = list(accumulate(len(part) for part in self.sets))

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: int) -> StoreItem:
        """The item outside training."""
        return self.get_item(index, None)

    def get_item(self, index: int, key: SampleKey | None) -> StoreItem:
        """The item of one draw.

        Raises:
            DataError: the clip is damaged.
        """
        part, number = self._locate(index)
        found = part.store.read(int(part.positions[number]), part.names, check=self.check)
        whole = found[layout.MEAN].shape[0]
        frames = int(found[layout.FRAMES]) if layout.FRAMES in found else whole
        if not 1 <= frames <= whole:
            raise DataError(
                f"{part.store.directory}: clip {part.ids[number]!r} has {frames} valid frames of "
                f"{whole}."
            )
        wide = {
            name: tensor.to(torch.float32)
            for name, tensor in found.items()
            if name != layout.FRAMES
        }
        return StoreItem(
            self.sample_id(index),
            wide[layout.MEAN][:frames],
            wide[layout.STD][:frames],
            wide[layout.TEXT],
            wide.get(layout.CLIP),
            wide.get(layout.SYNC),
            part.texts[number],
            key,
        )

    def sample_id(self, index: int) -> str:
        """Id of an item: its set's name and its own id."""
        part, number = self._locate(index)
        return f"{part.name}/{part.ids[number]}"

    def resume_fingerprint(self) -> dict[str, Any]:
        """JSON that changes when items would."""
        sets = "".join(part.fingerprint for part in self.sets)
        return {"sets_sha256": hashlib.sha256(sets.encode()).hexdigest()}

    def _locate(self, index: int) -> tuple[ClipSet, int]:
        number = index + len(self) if index < 0 else index
        if not 0 <= number < len(self):
            raise IndexError(f"clip {index} of {len(self)}")
        which = bisect_right(self._ends, number)
        return self.sets[which], number - (self._ends[which - 1] if which else 0)
