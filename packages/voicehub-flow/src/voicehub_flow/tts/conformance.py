"""A tiny text-to-speech model for the conformance kit, which spells tones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from voicehub.adapters.base import TrainingAdapter
from voicehub.data.keyed_random import SampleKey, torch_generator
from voicehub_data.corpus_case import CorpusCase, exchanged
from voicehub_data.synthetic.tones import spelt_by_tones
from voicehub_flow.config import F5TTSModelConfig
from voicehub_flow.mel import MelSettings
from voicehub_flow.text import Vocabulary
from voicehub_flow.tts.data import F5Collator, F5Dataset, F5Item, MelReader
from voicehub_flow.tts.durations import Durations
from voicehub_flow.tts.model import F5TTS
from voicehub_flow.tts.scaling import MelScaling
from voicehub_flow.tts.voices import Voices

RATE = 4000
#: One tone a letter, in Hz.
TONES = {"a": 200.0, "b": 400.0, "c": 800.0, "d": 1400.0}
LETTER_SECONDS = 0.064
MEL: dict[str, Any] = {"sample_rate": RATE, "n_fft": 128, "hop_length": 64, "n_mels": 8}
ARCHITECTURE: dict[str, Any] = {
    "dim": 16,
    "depth": 2,
    "heads": 2,
    "text_dim": 8,
    "conv_layers": 1,
    "conv_kernel": 3,
    "conv_groups": 2,
    "text_layout": "spread",
}
SPEAKERS = ("anna", "bert")
#: About what the tones have.
_SCALING = MelScaling((-5.0,) * 8, (3.0,) * 8)


def tones(letters: str, seed: int) -> np.ndarray[Any, Any]:
    """The sound that spells letters, float32 (samples,) at 4 kHz."""
    noise = np.random.default_rng(seed)
    return spelt_by_tones(letters, TONES, LETTER_SECONDS, RATE, noise, level=0.5)


def letters_of(length: int, seed: int) -> str:
    """So many letters, by a seed."""
    return "".join(np.random.default_rng(seed).choice(list(TONES), size=length))


def tiny_config(**settings: Any) -> F5TTSModelConfig:
    """The model section of a tiny run from random weights."""
    architecture = {**ARCHITECTURE, **settings.pop("architecture", {})}
    synthesis = {"guidance_scale": 2.0, "steps": 4}
    values = {"mel": MEL, "synthesis": synthesis, "vocoder": {"iterations": 4}, **settings}
    return F5TTSModelConfig.load({"architecture": architecture, **values})


class StirredF5TTS(F5TTS):
    """Starts from weights of which none are zero: behind closed gates nothing could be seen."""

    def _load_weights(self) -> None:
        super()._load_weights()
        if self._weights is not None:
            return
        generator = torch_generator("flow", "stirred")
        with torch.no_grad():
            for parameter in self.model.parameters():
                if not bool(parameter.any()):
                    parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))


def tiny_wrapper(speakers: Sequence[str] = SPEAKERS, **settings: Any) -> StirredF5TTS:
    """A lazy wrapper of random weights."""
    return StirredF5TTS.from_config(
        tiny_config(**settings),
        Vocabulary(list(TONES)),
        Voices(speakers),
        scaling=_SCALING,
        durations=Durations(dict.fromkeys(TONES, LETTER_SECONDS)),
    )


class F5TTSCase(CorpusCase):
    """The recipe with speakers and a spread text. Lengths are letters."""

    model_type = "f5tts"
    lengths = (2, 6)
    sample_rate = RATE
    training: ClassVar[dict[str, Any]] = {"max_steps": 60, "learning_rate": 1e-2}

    def __init__(self) -> None:
        super().__init__()
        self.reader = MelReader(MelSettings.model_validate(MEL))
        self.vocabulary = Vocabulary(list(TONES))

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process makes a case of its own, and does not delete the folder of this one."""
        return type(self), ()

    def wrapper(self, dropout: float) -> StirredF5TTS:
        return tiny_wrapper(dropout=dropout)

    def item(self, length: int, seed: int) -> F5Item:
        """Return an item as the data set yields it in training, where conditions are dropped."""
        letters = letters_of(length, seed)
        audio = torch.from_numpy(tones(letters, seed))
        mel = _SCALING.scaled(self.reader.frames(audio))
        ids, key = self.vocabulary.encode(letters).ids, SampleKey(seed, 0, length, 0)
        speaker = 1 + seed % len(SPEAKERS)
        seconds = len(audio) / RATE
        return F5Item(f"{length}-{seed}", ids, mel, speaker, letters, seconds, key)

    def collate(self, items: Sequence[Any]) -> dict[str, Any]:
        """Return the batch as the collator of a run makes it."""
        return F5Collator(tiny_config().objective)(items)

    def shuffled(self, items: Sequence[Any], seed: int) -> list[F5Item]:
        """Give each sound the letters of the next."""
        return exchanged(items, "ids", "text")

    def output_lengths(self, adapter: TrainingAdapter, inputs: Any) -> Tensor:
        """Frames of so many letters."""
        samples = inputs["text_lengths"] * int(LETTER_SECONDS * RATE)
        frames: Tensor = samples // int(MEL["hop_length"]) + 1
        return frames

    def dataset(self, size: int, seed: int) -> F5Dataset:
        """Return the real data set over files."""
        rows, ids = [], []
        for number in range(size):
            letters = letters_of(2 + number % 4, seed * 1000 + number)
            audio = tones(letters, number)
            rows.append(self.recorded(f"{seed}-{number}", audio, letters, row=number + 1))
            ids.append(self.vocabulary.encode(letters).ids)
        return F5Dataset(rows, ids, [1] * size, self.reader, _SCALING, cache_bytes=1 << 20)
