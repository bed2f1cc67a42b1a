"""From items to a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from voicehub.errors import DataError
from voicehub_asr_ctc.data.dataset import CTCItem
from voicehub_asr_ctc.front_ends.base import FrontEnd
from voicehub_data.augment import SpecAugment
from voicehub_hf.spec_augment import draw_masks

#: What a label row is filled with behind its labels; never read.
IGNORED = -100
#: Batch keys that the objective reads and the model's forward does not take.
OBJECTIVE_KEYS = (
    "labels",
    "label_lengths",
    "frame_lengths",
    "produced_frames",
    "input_lengths",
    "time_mask",
    "feature_mask",
)


class CTCCollator:
    """Pads items and draws the masks of models that are masked behind their front end.

    A batch holds the keyword arguments of the model's forward and: ``labels`` int64 (B, most
    labels), ``label_lengths``, ``frame_lengths``, ``produced_frames`` and ``input_lengths`` as
    lists, ``time_mask`` (B, frames) and ``feature_mask`` (B, hidden) where masks were drawn,
    ``batch_info``.

    Args:
        front_end: of the model.
        spec_augment: masks over hidden states, for front ends that ask for them.
    """

    #: Draws by key alone.
    deterministic = True

    def __init__(self, front_end: FrontEnd, spec_augment: SpecAugment | None = None) -> None:
        self.front_end = front_end
        self.spec_augment = spec_augment if front_end.masks == "hidden" else None

    def __call__(self, items: Sequence[CTCItem]) -> dict[str, Any]:
        """Return the batch.

        Raises:
            DataError: there is no item.
        """
        if not items:
            raise DataError("a batch needs at least one utterance.")
        batch = self.front_end.batch([item.prepared for item in items])
        width = max(1, *(len(item.labels) for item in items))
        labels = torch.full((len(items), width), IGNORED, dtype=torch.long)
        for row, item in zip(labels, items, strict=True):
            row[: len(item.labels)] = torch.tensor(item.labels, dtype=torch.long)
        batch["labels"] = labels
        batch["label_lengths"] = [len(item.labels) for item in items]
        batch["frame_lengths"] = [item.prepared.frames for item in items]
        batch["produced_frames"] = [item.prepared.produced for item in items]
        batch["input_lengths"] = [len(item.prepared.rows) for item in items]
        keys = [item.key for item in items]
        if self.spec_augment is not None and all(key is not None for key in keys):
            batch["time_mask"], batch["feature_mask"] = draw_masks(
                self.spec_augment,
                [self.front_end.mask_frames(item.prepared) for item in items],
                self.front_end.hidden_size,
                keys,
                [item.id for item in items],
            )
        seconds = [item.seconds for item in items]
        batch["batch_info"] = {
            "ids": [item.id for item in items],
            "texts": [item.text for item in items],
            "keys": keys,
            "audio_seconds": sum(seconds),
            "padded_seconds": len(items) * max(seconds),
        }
        return batch

    def resume_fingerprint(self) -> dict[str, Any]:
        """JSON that changes when batches would."""
        masks = None if self.spec_augment is None else self.spec_augment.fingerprint()
        return {"front_end": self.front_end.fingerprint(), "spec_augment": masks}
