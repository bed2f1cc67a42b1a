"""Utterances as encoder inputs and labels, with draws keyed by sample."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from voicehub.data.keyed_random import SampleKey
from voicehub_asr_llm.decoders.chat import Kind
from voicehub_asr_llm.encoders.base import FrontEnd, Prepared
from voicehub_data.audio import extended
from voicehub_data.augment import Augmentation, SilenceInjection, SpecAugment
from voicehub_data.manifest import ManifestRow
from voicehub_data.masked_inputs import masked
from voicehub_data.prepared_dataset import PreparedDataset

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Labels = tuple[int, ...]


class AsrLlmItem(NamedTuple):
    """One utterance.

    Attributes:
        id: of its row.
        prepared: the encoder's input.
        labels: tokens of the transcript and the end of the turn.
        prompt: which prompt asks for it.
        text: the transcript.
        seconds: of audio, after augmentation.
        key: names the draw; None outside training.
    """

    id: str
    prepared: Prepared
    labels: Labels
    prompt: Kind
    text: str
    seconds: float
    key: SampleKey | None


class Silence(NamedTuple):
    """Draws of recordings in which nobody speaks.

    Attributes:
        injection: decides which draws they are, and makes their audio.
        labels: of an empty transcript: the end of the turn.
    """

    injection: SilenceInjection
    labels: Labels


class AsrLlmDataset(PreparedDataset[AsrLlmItem, Prepared]):
    """Decodes, augments and prepares rows.

    Args:
        rows, labels, prompts: in one order; the text of a row is its transcript as trained on.
        front_end: of the encoder.
        minimum_frames: audio that gives fewer frames is extended with silence.
        augment: of the audio; None for none.
        spec_augment: masks over features, for front ends that have some.
        silence: draws that become a recording without speech and an empty transcript.
        cache_bytes: memory for what is kept, in each worker.
    """

    def __init__(
        self,
        rows: Sequence[ManifestRow],
        labels: Sequence[Labels],
        prompts: Sequence[Kind],
        front_end: FrontEnd,
        *,
        minimum_frames: int = 1,
        augment: Augmentation | None = None,
        spec_augment: SpecAugment | None = None,
        silence: Silence | None = None,
        cache_bytes: int = 0,
    ) -> None:
        super().__init__(
            rows, sample_rate=front_end.sample_rate, augment=augment, cache_bytes=cache_bytes
        )
        self.silence = silence
        self.labels, self.prompts = list(labels), list(prompts)
        self.front_end = front_end
        self.minimum_samples = front_end.minimum_samples(minimum_frames)
        self.spec_augment = spec_augment if front_end.features else None

    def prepare(self, audio: NDArray[np.float32]) -> Prepared:
        return self.front_end.prepare(extended(audio, self.minimum_samples))

    def get_item(self, index: int, key: SampleKey | None) -> AsrLlmItem:
        row = self.rows[index]
        silence = self.silence
        if key is not None and silence is not None and silence.injection.takes(key, row.id):
            return self._silent(index, key, silence)
        prepared, seconds = self.prepared(index, key)
        prepared = masked(prepared, self.spec_augment, self.front_end.sample_rate, key, row.id)
        labels, prompt = self.labels[index], self.prompts[index]
        return AsrLlmItem(row.id, prepared, labels, prompt, row.text, seconds, key)

    def _silent(self, index: int, key: SampleKey, silence: Silence) -> AsrLlmItem:
        """As long as the row that it stands for."""
        row, rate = self.rows[index], self.front_end.sample_rate
        samples = max(self.minimum_samples, round((row.duration or 0.0) * rate))
        audio = silence.injection.audio(samples, rate, key, row.id)
        prepared = self.front_end.prepare(audio)
        prompt = self.prompts[index]
        return AsrLlmItem(row.id, prepared, silence.labels, prompt, "", samples / rate, key)

    def resume_fingerprint(self) -> dict[str, Any]:
        """JSON that changes when items would."""
        digest = hashlib.sha256(repr((self.labels, self.prompts)).encode())
        masks = None if self.spec_augment is None else self.spec_augment.fingerprint()
        return {
            **self.speech.resume_fingerprint(),
            "labels_sha256": digest.hexdigest(),
            "front_end": self.front_end.fingerprint(),
            "spec_augment": masks,
            "silence": None if self.silence is None else self.silence.injection.fingerprint(),
        }
