"""Tiny models of every type for the conformance kit, which tell voices made of tones apart."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from voicehub.adapters.base import TrainingAdapter
from voicehub_data.augment import Compose, Gain, SpecAugment
from voicehub_data.corpus_case import CorpusCase, exchanged
from voicehub_data.samplers import RandomChunkPlan
from voicehub_xvector.config import EncoderModelConfig, LogMelModelConfig
from voicehub_xvector.data import XVectorCollator, XVectorDataset, XVectorItem
from voicehub_xvector.embedder import XVectorModel
from voicehub_xvector.front_ends import FrontEnd
from voicehub_xvector.model import EncoderXVector, LogMelXVector

_RATE = 16000
#: Two formants of each voice, in Hz.
_VOICES = {
    "ann": (300.0, 900.0), "bob": (500.0, 1500.0), "cat": (700.0, 2400.0), "dan": (1100.0, 3300.0),
}  # fmt: skip
_CLASSES = sorted(_VOICES)


def voice(seed: int, samples: int) -> tuple[str, np.ndarray[Any, Any]]:
    """Return a speaker, and so many samples that change between two formants.

    They change, since some front ends remove what stays the same over an utterance.
    """
    generator = np.random.default_rng(seed)
    name = _CLASSES[int(generator.integers(len(_CLASSES)))]
    time = np.arange(samples) / _RATE
    low, high = (np.sin(2 * np.pi * f * time) for f in _VOICES[name])
    first = (time / 0.04 + generator.random()) % 2 < 1
    noisy = 0.1 * np.where(first, low, high) + 0.005 * generator.standard_normal(samples)
    return name, noisy.astype(np.float32)


class _XVectorCase(CorpusCase):
    """Lengths are pieces of 20 ms.

    The head normalises each frame by itself. With batch normalisation, the default of the family,
    the training loss of an utterance depends on its batch mates, as it does anywhere.
    """

    lengths = (6, 20)
    sample_rate = _RATE
    training: ClassVar[dict[str, Any]] = {"max_steps": 30, "learning_rate": 1e-2}
    head: ClassVar[dict[str, Any]] = {
        "kind": "resnet1d", "block": "basic", "in_channels": 12, "channels": [12], "repeats": [1],
        "kernels": [3], "strides": [1], "dilations": [1], "norm": "layer", "embedding_size": 8,
    }  # fmt: skip
    loss: ClassVar[dict[str, Any]] = {"kind": "aam", "scale": 8.0, "margin": 0.1}
    exemptions: ClassVar[dict[str, str]] = {
        "lengths": "an embedding has no time dimension; the frames below it are tested apart"
    }

    def __init__(self) -> None:
        super().__init__()
        self._front_end: FrontEnd | None = None

    @abstractmethod
    def wrapper(self, dropout: float) -> XVectorModel: ...

    @property
    def front_end(self) -> FrontEnd:
        """Of the model; needs no weights."""
        if self._front_end is None:
            self._front_end = self.wrapper(0.0).front_end
        return self._front_end

    def item(self, length: int, seed: int) -> XVectorItem:
        """Return an item as the data set yields it."""
        name, audio = voice(seed, length * _RATE // 50)
        prepared = self.front_end.prepare(audio)
        label = _CLASSES.index(name)
        return XVectorItem(f"{length}-{seed}", prepared, label, name, len(audio) / _RATE, None)

    def collate(self, items: Sequence[Any]) -> dict[str, Any]:
        """Return the batch as the collator of a run makes it."""
        return XVectorCollator(self.front_end)(items)

    def shuffled(self, items: Sequence[Any], seed: int) -> list[XVectorItem]:
        """Give each sound the speaker of the next."""
        return exchanged(items, "label", "speaker")

    def dataset(self, size: int, seed: int) -> XVectorDataset:
        """Return the real data set over files: speeds, pieces and both kinds of augmentation."""
        rows = []
        for number in range(size):
            name, audio = voice(seed * 1000 + number, (8 + number % 5) * _RATE // 50)
            file = f"{seed}-{number}"
            rows.append(self.recorded(file, audio, speaker=name, row=number + 1))
        data = XVectorDataset(
            rows,
            _CLASSES,
            self.front_end,
            speeds=(1.1,),
            augment=Compose([Gain((-3.0, 3.0))]),
            spec_augment=SpecAugment(1, 3, 0.3, 1, 4),
        )
        data.cut_by(RandomChunkPlan(data.planning_durations, (0.1, 0.15), 1.0, 4, seed=seed))
        return data

    def output_lengths(self, adapter: TrainingAdapter, inputs: Any) -> Tensor:
        """Return the frames that the front end's formula gives to the head."""
        return torch.tensor([self.front_end.fused_frames(int(n)) for n in inputs["lengths"]])


class LogMelCase(_XVectorCase):
    """A head on log-mel features."""

    model_type = "xvector-logmel"

    def wrapper(self, dropout: float) -> XVectorModel:
        config = {
            "features": {"kind": "log-mel", "n_mels": 20, "normalize": "none"},
            "head": {**self.head, "dropout": dropout},
            "loss": self.loss,
        }
        return LogMelXVector.from_config(LogMelModelConfig.model_validate(config), _CLASSES)


class _EncoderCase(_XVectorCase):
    """A pretrained encoder over a tiny random checkpoint, all of it trained."""

    #: Settings of the checkpoint's config.
    settings: ClassVar[dict[str, Any]] = {}
    #: Dropout rates of the model's config.
    dropouts: ClassVar[tuple[str, ...]] = (
        "hidden_dropout",
        "attention_dropout",
        "activation_dropout",
    )

    def wrapper(self, dropout: float) -> XVectorModel:
        from voicehub_hf.testing_encoders import make_tiny_encoder_checkpoint

        kind = self.model_type.removeprefix("xvector-")
        checkpoint = self.directory / "checkpoint"
        if not checkpoint.is_dir():
            make_tiny_encoder_checkpoint(checkpoint, kind, **self.settings)
        config = {
            "path": str(checkpoint),
            "train_mode": "full",
            "head": {**self.head, "dropout": dropout},
            "loss": self.loss,
            **dict.fromkeys(self.dropouts, dropout),
        }
        model = EncoderModelConfig.model_validate(config)
        return EncoderXVector.from_config(model, _CLASSES, model_type=self.model_type)


#: Frames of 20 ms by three convolutions, and one layer: the kit runs hundreds of updates.
_WAVEFORM = {
    "feat_proj_dropout": 0.0, "final_dropout": 0.0, "num_hidden_layers": 1,
    "conv_dim": (8, 8, 8), "conv_kernel": (10, 8, 4), "conv_stride": (10, 8, 4),
}  # fmt: skip


class Wav2Vec2Case(_EncoderCase):
    """wav2vec 2.0."""

    model_type = "xvector-wav2vec2"
    settings: ClassVar[dict[str, Any]] = _WAVEFORM


class HubertCase(_EncoderCase):
    """HuBERT."""

    model_type = "xvector-hubert"
    settings: ClassVar[dict[str, Any]] = _WAVEFORM


class WavLMCase(_EncoderCase):
    """WavLM."""

    model_type = "xvector-wavlm"
    settings: ClassVar[dict[str, Any]] = _WAVEFORM


class WhisperCase(_EncoderCase):
    """Whisper's encoder."""

    model_type = "xvector-whisper"
    dropouts: ClassVar[tuple[str, ...]] = ()
    settings: ClassVar[dict[str, Any]] = {"encoder_layers": 1}
    exemptions: ClassVar[dict[str, str]] = {
        **_XVectorCase.exemptions,
        "padding_garbage": "every input is as long as the longest the encoder takes",
    }


class Wav2Vec2BertCase(_EncoderCase):
    """W2V-BERT 2.0."""

    model_type = "xvector-wav2vec2-bert"
    training: ClassVar[dict[str, Any]] = {"max_steps": 40, "learning_rate": 5e-3}
    settings: ClassVar[dict[str, Any]] = {
        "feat_proj_dropout": 0.0, "final_dropout": 0.0, "conformer_conv_dropout": 0.0,
        "num_hidden_layers": 1,
    }  # fmt: skip
