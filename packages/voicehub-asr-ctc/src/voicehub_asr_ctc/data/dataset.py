"""Utterances as model inputs, with draws keyed by sample."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from voicehub.data.keyed_random import SampleKey
from voicehub_asr_ctc.front_ends.base import FrontEnd, Prepared
from voicehub_data.augment import Augmentation, SpecAugment
from voicehub_data.dataset import SpeechDataset
from voicehub_data.manifest import ManifestRow

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


class CTCDataset:
    """Decodes, augments and prepares rows.

    Without augmentation of the audio, prepared inputs are kept in memory; with it, decoded audio.

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
        self.labels = list(labels)
        self.front_end = front_end
        features = front_end.masks == "features"
        self.spec_augment = spec_augment if features else None
        self.second_view = second_view if features else None
        self._keeps_inputs = augment is None
        self.speech = SpeechDataset(
            rows,
            sample_rate=front_end.sample_rate,
            augment=augment,
            cache_bytes=0 if self._keeps_inputs else cache_bytes,
        )
        self._kept: dict[int, tuple[Prepared, float]] = {}
        self._room = cache_bytes if self._keeps_inputs else 0

    def __len__(self) -> int:
        return len(self.speech)

    def __getitem__(self, index: int) -> CTCItem:
        """The item without augmentation."""
        return self.get_item(index, None)

    def get_item(self, index: int, key: SampleKey | None) -> CTCItem:
        """The item of one draw; equal keys give equal items in any process."""
        prepared, seconds = self._prepared(index, key)
        row = self.speech.rows[index]
        first = self._masked(prepared, self.spec_augment, key, row.id)
        second = None
        if key is not None and self.second_view is not None:
            second = self._masked(prepared, self.second_view, key, row.id)
        return CTCItem(row.id, first, self.labels[index], row.text, seconds, key, second)

    def _masked(
        self, prepared: Prepared, masks: SpecAugment | None, key: SampleKey | None, name: str
    ) -> Prepared:
        if key is None or masks is None:
            return prepared
        rate = self.front_end.sample_rate
        rows = masks.apply(prepared.rows, rate, key, name, num_frames=prepared.valid)
        return prepared._replace(rows=rows)

    def _prepared(self, index: int, key: SampleKey | None) -> tuple[Prepared, float]:
        kept = self._kept.get(index)
        if kept is not None:
            return kept
        item = self.speech.get_item(index, key)
        prepared = self.front_end.prepare(item["audio"])
        result = (prepared, float(item["duration"]))
        size = prepared.rows.numel() * prepared.rows.element_size()
        if size <= self._room:
            self._kept[index] = result
            self._room -= size
        return result

    @property
    def rows(self) -> Sequence[ManifestRow]:
        """The rows, in the order of the items."""
        return self.speech.rows

    @property
    def planning_durations(self) -> list[float]:
        """Seconds that each item may last at most."""
        return self.speech.planning_durations

    def sample_id(self, index: int) -> str:
        """Id of an item, for messages."""
        return self.speech.rows[index].id

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
