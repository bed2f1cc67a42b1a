"""From items to a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from voicehub.errors import DataError
from voicehub_data.augment import SpecAugment
from voicehub_hf.spec_augment import draw_masks
from voicehub_xvector.data.dataset import XVectorItem
from voicehub_xvector.front_ends.base import FrontEnd

#: Batch keys that the objective reads and the network's forward does not take.
OBJECTIVE_KEYS = ("labels",)


class XVectorCollator:
    """Pads items, and draws the masks of models that are masked behind their encoder.

    A batch holds the keyword arguments of the network's forward, ``labels`` int64 (B,) with -1 for
    unknown speakers, ``time_mask`` (B, frames) and ``feature_mask`` (B, values) where masks were
    drawn, and ``batch_info``.

    Args:
        front_end: of the model.
        spec_augment: masks over fused features, for front ends that ask for them.
        fused_size: values of a fused frame.
    """

    #: Draws by key alone.
    deterministic = True

    def __init__(
        self, front_end: FrontEnd, spec_augment: SpecAugment | None = None, fused_size: int = 0
    ) -> None:
        self.front_end = front_end
        self.spec_augment = spec_augment if front_end.masks == "fused" else None
        self.fused_size = fused_size

    def __call__(self, items: Sequence[XVectorItem]) -> dict[str, Any]:
        """Return the batch.

        Raises:
            DataError: there is no item.
        """
        if not items:
            raise DataError("a batch needs at least one utterance.")
        batch = self.front_end.batch([item.prepared for item in items])
        batch["labels"] = torch.tensor([item.label for item in items], dtype=torch.long)
        keys = [item.key for item in items]
        ids = [item.id for item in items]
        if self.spec_augment is not None and all(key is not None for key in keys):
            frames = [self.front_end.fused_frames(item.prepared.valid) for item in items]
            batch["time_mask"], batch["feature_mask"] = draw_masks(
                self.spec_augment, frames, self.fused_size, keys, ids
            )
        seconds = [item.seconds for item in items]
        batch["batch_info"] = {
            "ids": ids,
            "speakers": [item.speaker for item in items],
            "keys": keys,
            "audio_seconds": sum(seconds),
            "padded_seconds": len(items) * max(seconds),
        }
        return batch

    def resume_fingerprint(self) -> dict[str, Any]:
        """JSON that changes when batches would."""
        masks = None if self.spec_augment is None else self.spec_augment.fingerprint()
        return {"front_end": self.front_end.fingerprint(), "spec_augment": masks}
