"""Tiny models of every type for the conformance kit, which spell tones."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from voicehub.adapters.base import TrainingAdapter
from voicehub_asr_ctc.config import LogMelModelConfig, PretrainedModelConfig
from voicehub_asr_ctc.data import CTCCollator, CTCDataset
from voicehub_asr_ctc.data.dataset import CTCItem
from voicehub_asr_ctc.front_ends import FrontEnd
from voicehub_asr_ctc.model import LogMelCTC, TransformersCTC
from voicehub_asr_ctc.recogniser import CTCRecogniser
from voicehub_asr_ctc.tokenizers import CharacterTokenizer
from voicehub_data.augment import Compose, Gain, SpecAugment, Speed
from voicehub_data.corpus_case import CorpusCase, exchanged
from voicehub_data.synthetic.tones import spelt_by_tones

_RATE = 16000
#: One tone a letter, in Hz.
_TONES = {"a": 300.0, "b": 700.0, "c": 1500.0, "d": 3000.0}
_TOKENIZER = CharacterTokenizer.from_characters(list(_TONES), with_unknown=True)


def tones(length: int, seed: int, seconds: float) -> tuple[str, np.ndarray[Any, Any]]:
    """Return so many letters, and the sound that spells them at so many seconds each."""
    generator = np.random.default_rng(seed)
    letters = "".join(generator.choice(list(_TONES), size=length))
    level = 0.3 * np.hanning(int(seconds * _RATE))
    return letters, spelt_by_tones(letters, _TONES, seconds, _RATE, generator, level=level)


class _CTCCase(CorpusCase):
    """Lengths are letters."""

    #: Seconds of one: the longest text must fit into the shortest sound when they are exchanged.
    letter_seconds: ClassVar[float] = 0.12
    lengths = (2, 6)
    sample_rate = _RATE

    def __init__(self) -> None:
        super().__init__()
        self._front_end: FrontEnd | None = None

    @abstractmethod
    def wrapper(self, dropout: float) -> CTCRecogniser: ...

    @property
    def front_end(self) -> FrontEnd:
        """Of the model; needs no weights."""
        if self._front_end is None:
            self._front_end = self.wrapper(0.0).front_end
        return self._front_end

    def item(self, length: int, seed: int) -> CTCItem:
        """Return an item as the data set yields it."""
        letters, audio = tones(length, seed, self.letter_seconds)
        labels = _TOKENIZER.encode(letters).ids
        prepared = self.front_end.prepare(audio)
        return CTCItem(f"{length}-{seed}", prepared, labels, letters, len(audio) / _RATE, None)

    def collate(self, items: Sequence[Any]) -> dict[str, Any]:
        """Return the batch as the collator of a run makes it."""
        return CTCCollator(self.front_end)(items)

    def shuffled(self, items: Sequence[Any], seed: int) -> list[CTCItem]:
        """Give each sound the letters of the next."""
        return exchanged(items, "labels", "text")

    def dataset(self, size: int, seed: int) -> CTCDataset:
        """Return the real data set over files, with augmentation of audio and features."""
        rows, labels = [], []
        for number in range(size):
            letters, audio = tones(2 + number % 4, seed * 1000 + number, self.letter_seconds)
            rows.append(self.recorded(f"{seed}-{number}", audio, letters, row=number + 1))
            labels.append(_TOKENIZER.encode(letters).ids)
        augment = Compose([Speed((0.9, 1.0, 1.1)), Gain((-3.0, 3.0))])
        masks = SpecAugment(1, 6, 0.3, 1, 8)
        return CTCDataset(rows, labels, self.front_end, augment=augment, spec_augment=masks)

    def output_lengths(self, adapter: TrainingAdapter, inputs: Any) -> Tensor:
        """Return the frames that the front end's formula gives."""
        return torch.tensor(inputs["produced_frames"])


class LogMelCase(_CTCCase):
    """The log-mel model."""

    model_type = "ctc-logmel"
    training: ClassVar[dict[str, Any]] = {"max_steps": 80, "learning_rate": 5e-3}

    def wrapper(self, dropout: float) -> CTCRecogniser:
        config = LogMelModelConfig(
            n_mels=20,
            hidden_size=24,
            num_blocks=2,
            num_heads=2,
            kernel_size=7,
            attention_every=2,
            dropout=dropout,
        )
        return LogMelCTC.from_config(config, _TOKENIZER)


class _PretrainedCase(_CTCCase):
    """A class of transformers over a tiny random checkpoint."""

    training: ClassVar[dict[str, Any]] = {"max_steps": 80, "learning_rate": 5e-3}
    #: Settings of the checkpoint's config.
    settings: ClassVar[dict[str, Any]] = {}
    #: Dropout rates of the model's config.
    dropouts: ClassVar[tuple[str, ...]] = (
        "hidden_dropout",
        "attention_dropout",
        "activation_dropout",
    )

    def wrapper(self, dropout: float) -> CTCRecogniser:
        from voicehub_hf.testing import make_tiny_ctc_checkpoint

        kind = self.model_type.removeprefix("ctc-")
        checkpoint = self.directory / "checkpoint"
        if not checkpoint.is_dir():
            make_tiny_ctc_checkpoint(checkpoint, kind, _TOKENIZER.tokens, **self.settings)
        config = PretrainedModelConfig.model_validate(
            {
                "path": str(checkpoint),
                "freeze": "none",
                **dict.fromkeys(self.dropouts, dropout),
            }
        )
        return TransformersCTC.from_config(config, _TOKENIZER, model_type=self.model_type)


_WAVEFORM = {"feat_proj_dropout": 0.0, "final_dropout": 0.0}


class Wav2Vec2Case(_PretrainedCase):
    """wav2vec 2.0."""

    model_type = "ctc-wav2vec2"
    settings: ClassVar[dict[str, Any]] = _WAVEFORM


class HubertCase(_PretrainedCase):
    """HuBERT."""

    model_type = "ctc-hubert"
    settings: ClassVar[dict[str, Any]] = _WAVEFORM


class WavLMCase(_PretrainedCase):
    """WavLM."""

    model_type = "ctc-wavlm"
    settings: ClassVar[dict[str, Any]] = _WAVEFORM


class Wav2Vec2BertCase(_PretrainedCase):
    """W2V-BERT 2.0."""

    model_type = "ctc-wav2vec2-bert"
    settings: ClassVar[dict[str, Any]] = {**_WAVEFORM, "conformer_conv_dropout": 0.0}


class ParakeetCase(_PretrainedCase):
    """Parakeet."""

    model_type = "ctc-parakeet"
    # Its frames are 80 ms apart.
    letter_seconds = 0.4
    lengths = (2, 5)
    dropouts: ClassVar[tuple[str, ...]] = ()
    settings: ClassVar[dict[str, Any]] = {
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "dropout_positions": 0.0,
        "layerdrop": 0.0,
    }
