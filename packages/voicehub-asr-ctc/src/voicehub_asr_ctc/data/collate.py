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
    "views",
)


class CTCCollator:
    """Pads items and draws the masks of models that are masked behind their front end.

    A batch holds the keyword arguments of the model's forward and: ``labels`` int64 (B, most
    labels), ``label_lengths``, ``frame_lengths``, ``produced_frames`` and ``input_lengths`` as
    lists, ``time_mask`` (B, frames) and ``feature_mask`` (B, hidden) where masks were drawn,
    ``batch_info``. With a second view, ``views`` is 2, and the model's inputs, the masks and
    ``input_lengths`` hold all utterances twice, those of the first view first.

    Args:
        front_end: of the model.
        spec_augment: masks over hidden states, for front ends that ask for them.
        second_view: the masks of a second view of each utterance that has a key; they draw under
            another name.
    """

    #: Draws by key alone.
    deterministic = True

    def __init__(
        self,
        front_end: FrontEnd,
        spec_augment: SpecAugment | None = None,
        second_view: SpecAugment | None = None,
    ) -> None:
        self.front_end = front_end
        self.spec_augment = spec_augment if front_end.masks == "hidden" else None
        self.second_view = second_view

    def __call__(self, items: Sequence[CTCItem]) -> dict[str, Any]:
        """Return the batch.

        Raises:
            DataError: there is no item.
        """
        if not items:
            raise DataError("a batch needs at least one utterance.")
        keyed = all(item.key is not None for item in items)
        inputs = [item.prepared for item in items]
        if self.second_view is not None and keyed:
            inputs += [item.second or item.prepared for item in items]
        batch = self.front_end.batch(inputs)
        if len(inputs) > len(items):
            batch["views"] = 2
        width = max(1, *(len(item.labels) for item in items))
        labels = torch.full((len(items), width), IGNORED, dtype=torch.long)
        for row, item in zip(labels, items, strict=True):
            row[: len(item.labels)] = torch.tensor(item.labels, dtype=torch.long)
        batch["labels"] = labels
        batch["label_lengths"] = [len(item.labels) for item in items]
        batch["frame_lengths"] = [item.prepared.frames for item in items]
        batch["produced_frames"] = [item.prepared.produced for item in items]
        batch["input_lengths"] = [len(prepared.rows) for prepared in inputs]
        if self.spec_augment is not None and keyed:
            batch["time_mask"], batch["feature_mask"] = self._masks(items, "views" in batch)
        seconds = [item.seconds for item in items]
        batch["batch_info"] = {
            "ids": [item.id for item in items],
            "texts": [item.text for item in items],
            "keys": [item.key for item in items],
            "audio_seconds": sum(seconds),
            "padded_seconds": len(items) * max(seconds),
        }
        return batch

    def _masks(self, items: Sequence[CTCItem], twice: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Masks over time and features, of the first view and then of the second."""
        sources = [self.spec_augment, self.second_view] if twice else [self.spec_augment]
        drawn = [
            draw_masks(
                source,
                [self.front_end.mask_frames(item.prepared) for item in items],
                self.front_end.hidden_size,
                [item.key for item in items],
                [item.id for item in items],
            )
            for source in sources
            if source is not None
        ]
        time, feature = zip(*drawn, strict=True)
        return torch.cat(time), torch.cat(feature)

    def resume_fingerprint(self) -> dict[str, Any]:
        """JSON that changes when batches would."""
        masks = None if self.spec_augment is None else self.spec_augment.fingerprint()
        second = {} if self.second_view is None else {"second_view": self.second_view.fingerprint()}
        return {"front_end": self.front_end.fingerprint(), "spec_augment": masks, **second}
