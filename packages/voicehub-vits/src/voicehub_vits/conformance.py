"""A tiny VITS for the conformance kit, which speaks tones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from voicehub.adapters.base import TrainingAdapter
from voicehub_data.corpus_case import CorpusCase, exchanged
from voicehub_data.synthetic.tones import spelt_by_tones
from voicehub_vits.acoustic import AcousticConfig
from voicehub_vits.config import ArchitectureConfig, VitsModelConfig
from voicehub_vits.data import AudioPreparation, Prepared, VitsCollator, VitsDataset, VitsItem
from voicehub_vits.data.dataset import Labels
from voicehub_vits.data.voices import Voices
from voicehub_vits.features import Spectrogram
from voicehub_vits.model import VitsTTS
from voicehub_vits.testing import ACOUSTIC, SIZES
from voicehub_vits.text import TextFrontEnd, build_tokenizer

_RATE: int = ACOUSTIC["sampling_rate"]
#: One tone a letter, in Hz.
_TONES = {"a": 200.0, "b": 400.0, "c": 800.0, "d": 1400.0}
_LETTER_SECONDS = 0.128

ARCHITECTURE: dict[str, Any] = {
    name: value for name, value in SIZES.items() if name in ArchitectureConfig.model_fields
}


def tones(letters: str, seed: int) -> np.ndarray[Any, Any]:
    """The sound that spells letters, float32 (samples,) at 4 kHz."""
    level = 0.5 * np.hanning(int(_LETTER_SECONDS * _RATE)) ** 0.5
    noise = np.random.default_rng(seed)
    return spelt_by_tones(letters, _TONES, _LETTER_SECONDS, _RATE, noise, level=level)


def tiny_config(dropout: float = 0.0, **settings: Any) -> VitsModelConfig:
    """The model section of a tiny run."""
    rates = ("hidden", "attention", "activation", "duration_predictor", "wavenet")
    return VitsModelConfig.model_validate(
        {
            "architecture": ARCHITECTURE,
            "training_acoustic_config": ACOUSTIC,
            "text": {"kind": "characters"},
            "discriminator": {"width": 0.01, "periods": [2, 3]},
            "dropout": {f"{name}_dropout": dropout for name in rates},
            **settings,
        }
    )


def tiny_wrapper(config: VitsModelConfig, voices: Voices | None = None, seed: int = 0) -> VitsTTS:
    """A lazy wrapper of random weights over the letters of the tones."""
    from voicehub_vits.experiment import new_vits_config

    front_end, _ = build_tokenizer(list(_TONES))
    voices = voices or Voices()
    assert config.architecture is not None and config.training_acoustic_config is not None
    sizes = config.architecture.model_dump()
    made = new_vits_config(sizes, config.training_acoustic_config, front_end, voices)
    return VitsTTS.from_config(config, front_end, voices, vits_config=made, seed=seed)


class VitsCase(CorpusCase):
    """The full recipe. Lengths are letters."""

    model_type = "vits"
    lengths = (3, 7)
    sample_rate = _RATE
    training: ClassVar[dict[str, Any]] = {"max_steps": 12, "learning_rate": 3e-3}
    exemptions: ClassVar[dict[str, str]] = {
        "learning": "a recording is rendered from its own spectrogram, so that the loss falls "
        "whichever text stands beside it; that the text comes to matter takes thousands of "
        "updates, and the bar vits-overfit measures it"
    }

    def __init__(self) -> None:
        super().__init__()
        self.acoustic = AcousticConfig.model_validate(ACOUSTIC)
        self._spectrogram = Spectrogram(self.acoustic)
        self._front_end: TextFrontEnd | None = None

    def wrapper(self, dropout: float) -> VitsTTS:
        return tiny_wrapper(tiny_config(dropout))

    @property
    def front_end(self) -> TextFrontEnd:
        """Text to ids."""
        if self._front_end is None:
            self._front_end, _ = build_tokenizer(list(_TONES))
        return self._front_end

    def item(self, length: int, seed: int) -> VitsItem:
        """Return an item as the data set yields it."""
        letters = "".join(np.random.default_rng(seed).choice(list(_TONES), size=length))
        audio = torch.from_numpy(tones(letters, seed))
        hop = self.acoustic.hop_length
        audio = audio[: len(audio) // hop * hop]
        with torch.no_grad():
            spectrogram = self._spectrogram.linear(audio[None])[0]
        ids = self.front_end.encode(letters).ids
        return VitsItem(f"{length}-{seed}", ids, Prepared(audio, spectrogram), 0, 0, letters, None)

    def collate(self, items: Sequence[Any]) -> dict[str, Any]:
        """Return the batch as the collator of a run makes it."""
        return VitsCollator(self.acoustic, ARCHITECTURE["flow_size"])(items)

    def shuffled(self, items: Sequence[Any], seed: int) -> list[VitsItem]:
        """Give each recording the letters of the next."""
        return exchanged(items, "input_ids", "text")

    def output_lengths(self, adapter: TrainingAdapter, inputs: Any) -> Tensor:
        """Frames of so many letters: a token each and a blank before, between and behind them."""
        letters = (inputs["text_lengths"] - 1) // 2
        return letters * int(_LETTER_SECONDS * _RATE) // self.acoustic.hop_length

    def dataset(self, size: int, seed: int) -> VitsDataset:
        """Return the real data set over files."""
        rows, labels = [], []
        for number in range(size):
            item = self.item(3 + number % 4, seed * 1000 + number)
            audio = tones(item.text, number)
            rows.append(self.recorded(f"{seed}-{number}", audio, item.text, row=number + 1))
            labels.append(Labels(item.input_ids))
        return VitsDataset(rows, labels, AudioPreparation(self.acoustic, loudness=-23.0))
