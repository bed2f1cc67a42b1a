"""Utterances as model inputs, with draws keyed by sample."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from voicehub.data.keyed_random import SampleKey
from voicehub_asr_ctc.front_ends.base import FrontEnd, Prepared
from voicehub_data.augment import Augmentation, SpecAugment
from voicehub_data.manifest import ManifestRow
from voicehub_data.masked_inputs import masked
from voicehub_data.prepared_dataset import PreparedDataset

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Labels = tuple[int, ...]


class CTCItem(NamedTuple):
    """One utterance.

    Attributes:
        id: of its row.
        prepared: the model's input.
        labels: token ids.
        text: transcript as the manifest has it.
        seconds: of audio, after augmentation.
        key: names the draw; None outside training.
        second: the input of a second view, masked by another draw; None where there is one view.
    """

    id: str
    prepared: Prepared
    labels: Labels
    text: str
    seconds: float
    key: SampleKey | None
    second: Prepared | None = None


class CTCDataset(PreparedDataset[CTCItem, Prepared]):
    """Decodes, augments and prepares rows.

    Args:
        rows, labels: in one order.
        front_end: of the model.
        augment: of the audio; None for none.
        spec_augment: masks over features, for front ends that mask features.
        second_view: masks of a second view of each item, which draw under another name.
        cache_bytes: memory for what is kept, in each worker.
    """

    def __init__(
        self,
        rows: Sequence[ManifestRow],
        labels: Sequence[Labels],
        front_end: FrontEnd,
        *,
        augment: Augmentation | None = None,
        spec_augment: SpecAugment | None = None,
        second_view: SpecAugment | None = None,
        cache_bytes: int = 0,
    ) -> None:
        super().__init__(
            rows, sample_rate=front_end.sample_rate, augment=augment, cache_bytes=cache_bytes
        )
        self.labels = list(labels)
        self.front_end = front_end
        features = front_end.masks == "features"
        self.spec_augment = spec_augment if features else None
        self.second_view = second_view if features else None

    def prepare(self, audio: NDArray[np.float32]) -> Prepared:
        return self.front_end.prepare(audio)

    def get_item(self, index: int, key: SampleKey | None) -> CTCItem:
        prepared, seconds = self.prepared(index, key)
        row, rate = self.rows[index], self.front_end.sample_rate
        first = masked(prepared, self.spec_augment, rate, key, row.id)
        second = None
        if key is not None and self.second_view is not None:
            second = masked(prepared, self.second_view, rate, key, row.id)
        return CTCItem(row.id, first, self.labels[index], row.text, seconds, key, second)

    def resume_fingerprint(self) -> dict[str, Any]:
        """JSON that changes when items would."""
        digest = hashlib.sha256(repr(self.labels).encode())
        masks = None if self.spec_augment is None else self.spec_augment.fingerprint()
        second = {} if self.second_view is None else {"second_view": self.second_view.fingerprint()}
        return {
            **self.speech.resume_fingerprint(),
            "labels_sha256": digest.hexdigest(),
            "front_end": self.front_end.fingerprint(),
            "spec_augment": masks,
            **second,
        }
