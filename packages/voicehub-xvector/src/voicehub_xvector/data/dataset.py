"""Recordings as model inputs, with draws keyed by sample."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from voicehub.data.keyed_random import SampleKey, numpy_generator
from voicehub_data.audio import resample
from voicehub_data.augment import Augmentation, SpecAugment
from voicehub_data.dataset import SpeechDataset
from voicehub_data.manifest import ManifestRow
from voicehub_data.masked_inputs import masked
from voicehub_data.memory import ItemMemory
from voicehub_data.row_audio import load_row
from voicehub_data.row_dataset import RowDataset
from voicehub_data.samplers import RandomChunkPlan
from voicehub_xvector.class_map import sped_speaker
from voicehub_xvector.front_ends.base import FrontEnd, Prepared

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Audio = NDArray[np.float32]

#: Recordings longer than this are never decoded whole where a piece is all that is wanted.
_WHOLE_SECONDS = 30.0
UNKNOWN = -1


class XVectorItem(NamedTuple):
    """One utterance.

    Attributes:
        id: of its row, and its speed where it is another.
        prepared: the model's input.
        label: class, or ``UNKNOWN``.
        speaker: name of the class.
        seconds: of audio.
        key: names the draw; None outside training.
    """

    id: str
    prepared: Prepared
    label: int
    speaker: str
    seconds: float
    key: SampleKey | None


class XVectorDataset(RowDataset[XVectorItem]):
    """Decodes, plays at other speeds, cuts, augments and prepares rows.

    The data set holds every row once at its own speed, then once at each of ``speeds``.

    Args:
        rows: each has a speaker.
        classes: label of each speaker's name; others are ``UNKNOWN``.
        front_end: of the model.
        speeds: other speeds, each of which makes new speakers.
        augment: of the audio; None for none.
        spec_augment: masks over features, for front ends that mask features.
        fills_pieces: a recording that is shorter than its piece is repeated until it fills it, for
            networks that need equal lengths.
        cache_bytes: memory for what is kept, in each worker.
    """

    def __init__(
        self,
        rows: Sequence[ManifestRow],
        classes: Sequence[str],
        front_end: FrontEnd,
        *,
        speeds: Sequence[float] = (),
        augment: Augmentation | None = None,
        spec_augment: SpecAugment | None = None,
        fills_pieces: bool = False,
        cache_bytes: int = 0,
    ) -> None:
        self.front_end = front_end
        self.fills_pieces = fills_pieces
        self.speeds = (1.0, *speeds)
        self.chunks: RandomChunkPlan | None = None
        self.augment = augment
        self.spec_augment = spec_augment if front_end.masks == "features" else None
        self._cache_bytes = cache_bytes
        self._build(rows)
        labels = {name: label for label, name in enumerate(classes)}
        speakers = [str(row.speaker) for row in rows]
        self.speakers = [
            name if speed == 1.0 else sped_speaker(name, speed)
            for speed in self.speeds
            for name in speakers
        ]
        self.labels = [labels.get(name, UNKNOWN) for name in self.speakers]

    def cut_by(self, chunks: RandomChunkPlan) -> None:
        """Yield pieces, as long as the plan says for each draw, from now on."""
        self.chunks = chunks
        self._build(self.speech.rows)

    def _build(self, rows: Sequence[ManifestRow]) -> None:
        """Keep prepared inputs where they are the same at every draw, else decoded audio."""
        keeps_inputs = self.augment is None and self.chunks is None
        self.speech = SpeechDataset(
            rows,
            sample_rate=self.front_end.sample_rate,
            cache_bytes=0 if keeps_inputs else self._cache_bytes,
        )
        self.rows = self.speech.rows
        self._memory: ItemMemory[tuple[Prepared, float]] = ItemMemory(
            self._cache_bytes if keeps_inputs else 0
        )

    def __len__(self) -> int:
        return len(self.labels)

    def get_item(self, index: int, key: SampleKey | None) -> XVectorItem:
        """The item of one draw; without a key neither pieces nor augmentation are drawn."""
        prepared, seconds = self._memory.get(index, lambda: self._prepared(index, key))
        name = self.sample_id(index)
        prepared = masked(prepared, self.spec_augment, self.front_end.sample_rate, key, name)
        return XVectorItem(name, prepared, self.labels[index], self.speakers[index], seconds, key)

    def _prepared(self, index: int, key: SampleKey | None) -> tuple[Prepared, float]:
        audio = self._audio(index, key)
        return self.front_end.prepare(audio), len(audio) / self.front_end.sample_rate

    def _audio(self, index: int, key: SampleKey | None) -> Audio:
        rate = self.front_end.sample_rate
        turn, row_index = divmod(index, len(self.speech))
        row, speed = self.speech.rows[row_index], self.speeds[turn]
        name = self.sample_id(index)
        wanted = None
        if key is not None and self.chunks is not None:
            wanted = self.chunks.chunk_seconds_of(key.epoch, key.draw)
        place = 0.0
        if wanted is not None and key is not None:
            draws = numpy_generator("xvector.chunk", key.seed, key.epoch, key.draw, name)
            place = float(draws.random())
        if wanted is not None and (row.duration or 0.0) > max(_WHOLE_SECONDS, wanted * speed):
            start = place * ((row.duration or 0.0) - wanted * speed)
            audio = load_row(row, rate, start=start, seconds=wanted * speed)
        else:
            audio = self.speech.get_item(row_index, None)["audio"]
            if wanted is not None:
                audio = _cut(audio, round(wanted * speed * rate), place)
        if speed != 1.0:
            audio = resample(audio, round(rate * speed), rate)
        audio = self._fit(audio, wanted)
        if key is not None and self.augment is not None:
            # Speeds drawn here change the length of a piece, whose cap must hold all the same.
            audio = self._fit(self.augment.apply(audio, rate, key, name), wanted)
        return audio

    def _fit(self, audio: Audio, seconds: float | None) -> Audio:
        """Cut a piece at its length; where lengths must be equal, repeat it until it is full."""
        if seconds is None:
            return audio
        samples = int(seconds * self.front_end.sample_rate + 1e-6)
        return np.resize(audio, samples) if self.fills_pieces else audio[:samples]

    @property
    def planning_durations(self) -> list[float]:
        """Seconds that each item may last at most."""
        stretch = 1.0 if self.augment is None else self.augment.max_stretch
        durations = self.speech.durations
        return [d / speed * stretch for speed in self.speeds for d in durations]

    def sample_id(self, index: int) -> str:
        """Id of an item."""
        turn, row_index = divmod(index, len(self.speech))
        name = self.speech.rows[row_index].id
        return name if turn == 0 else sped_speaker(name, self.speeds[turn])

    def resume_fingerprint(self) -> dict[str, Any]:
        """JSON that changes when items would."""
        digest = hashlib.sha256(repr((self.labels, self.speakers)).encode())
        return {
            **self.speech.resume_fingerprint(),
            "speeds": list(self.speeds),
            "classes_sha256": digest.hexdigest(),
            "front_end": self.front_end.fingerprint(),
            "chunks": self.chunks is not None,
            "fills_pieces": self.fills_pieces,
            "audio_augment": None if self.augment is None else self.augment.fingerprint(),
            "spec_augment": None if self.spec_augment is None else self.spec_augment.fingerprint(),
        }


def _cut(audio: Audio, samples: int, place: float) -> Audio:
    """A piece of so many samples at a place in [0, 1) of where it can begin."""
    room = len(audio) - samples
    if room <= 0:
        return audio
    start = int(place * (room + 1))
    return audio[start : start + samples]
