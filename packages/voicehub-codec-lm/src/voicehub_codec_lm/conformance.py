"""Tiny models of every layout for the conformance kit, which spell tones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from voicehub.adapters.base import TrainingAdapter
from voicehub_codec_lm.codecs import CorpusCodec, CorpusCodecConfig, TokenCache
from voicehub_codec_lm.codecs.cache import row_audio
from voicehub_codec_lm.data import (
    CodecCollator,
    CodecDataset,
    CodecItem,
)
from voicehub_codec_lm.model import CodecLM
from voicehub_codec_lm.networks.registry import NETWORKS
from voicehub_codec_lm.specs import DELAY, DEPTH, FLAT
from voicehub_codec_lm.text import CharacterPrompts
from voicehub_data.corpus_case import CorpusCase, exchanged
from voicehub_data.manifest import ManifestRow
from voicehub_data.synthetic.tones import spelt_by_tones

RATE = 4000
#: One tone a letter, in Hz.
TONES = {"a": 200.0, "b": 400.0, "c": 800.0, "d": 1400.0}
LETTER_SECONDS = 0.032
CODEC = {
    "sample_rate": RATE,
    "hop_length": 64,
    "n_fft": 128,
    "n_mels": 16,
    "num_codebooks": 2,
    "codebook_size": 8,
    "iterations": 8,
    "griffin_lim_iterations": 4,
}
ARCHITECTURES: dict[str, dict[str, Any]] = {
    FLAT: {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 256,
    },
    DELAY: {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "ffn_dim": 48,
        "max_position_embeddings": 64,
    },
    DEPTH: {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "depth_hidden_size": 16,
        "depth_intermediate_size": 32,
        "depth_layers": 1,
        "depth_attention_heads": 2,
        "max_position_embeddings": 256,
    },
}


def tones(letters: str, seed: int) -> np.ndarray[Any, Any]:
    """The sound that spells letters, float32 (samples,) at 4 kHz."""
    noise = np.random.default_rng(seed)
    return spelt_by_tones(letters, TONES, LETTER_SECONDS, RATE, noise, level=0.5)


def letters_of(length: int, seed: int) -> str:
    """So many letters, by a seed."""
    return "".join(np.random.default_rng(seed).choice(list(TONES), size=length))


def tone_codec(**settings: Any) -> CorpusCodec:
    """A corpus codec fitted to tones, in a tenth of a second."""
    clips = [torch.from_numpy(tones(letters_of(6, seed), seed)) for seed in range(30)]
    return CorpusCodec.fit(clips, CorpusCodecConfig.model_validate({**CODEC, **settings}))


def tone_prompts(speakers: Sequence[str] = ()) -> CharacterPrompts:
    """The letters, and speakers where there are any."""
    return CharacterPrompts.build(list(TONES), speakers)


def tiny_config(model_type: str, codec: str, **settings: Any) -> Any:
    """The model section of a tiny run from random weights."""
    _, config_class = NETWORKS[model_type]
    values = {"codec": {"path": codec}, "architecture": ARCHITECTURES[model_type], **settings}
    return config_class.model_validate(values)


class _CodecCase(CorpusCase):
    """Lengths are letters."""

    lengths = (2, 6)
    sample_rate = RATE
    # The norms of T5 and Llama compute in float32 whatever their input is.
    float64 = False
    training: ClassVar[dict[str, Any]] = {"max_steps": 60, "learning_rate": 1e-2}
    exemptions: ClassVar[dict[str, str]] = {
        "padding_garbage": "batches hold token ids, where a number out of the vocabulary has no "
        "meaning; padding_mates shows that padding does not matter"
    }

    def __init__(self) -> None:
        super().__init__()
        self._codec: CorpusCodec | None = None
        self._collator_of: CodecCollator | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process makes a case of its own, and does not delete the folder of this one."""
        return type(self), ()

    @property
    def codec(self) -> CorpusCodec:
        """Fitted when first asked for."""
        if self._codec is None:
            made = tone_codec()
            made.save(self.directory / "codec")
            self._codec = CorpusCodec.load(self.directory / "codec")
        return self._codec

    def wrapper(self, dropout: float = 0.0, **settings: Any) -> CodecLM:
        """A lazy wrapper of random weights."""
        config = tiny_config(self.model_type, self.codec.source, dropout=dropout, **settings)
        return CodecLM.from_config(config, tone_prompts(), self.codec, model_type=self.model_type)

    def item(self, length: int, seed: int) -> CodecItem:
        """Return an item as the data set yields it."""
        letters = letters_of(length, seed)
        audio = tones(letters, seed)
        codes = self.codec.encode(torch.from_numpy(audio))
        prompt = tone_prompts().encode(letters, None).ids
        return CodecItem(f"{length}-{seed}", prompt, codes, letters, len(audio) / RATE, None)

    def collate(self, items: Sequence[Any]) -> dict[str, Any]:
        """Return the batch as the collator of a run makes it."""
        if self._collator_of is None:
            self._collator_of = self.wrapper().network.collator()
        return self._collator_of(items)

    def shuffled(self, items: Sequence[Any], seed: int) -> list[CodecItem]:
        """Give each sound the letters of the next."""
        return exchanged(items, "prompt", "text")

    def dataset(self, size: int, seed: int) -> CodecDataset:
        """Return the real data set over files and a token cache."""
        rows, prompts = [], []
        for number in range(size):
            letters = letters_of(2 + number % 4, seed * 1000 + number)
            audio = tones(letters, number)
            rows.append(self.recorded(f"{seed}-{number}", audio, letters, row=number + 1))
            prompts.append(tone_prompts().encode(letters, None).ids)
        cache = TokenCache(self.directory / "tokens", self.codec)
        return CodecDataset(rows, prompts, cache.fill(rows), cache)

    def read_audio(self, path: Path) -> np.ndarray[Any, Any]:
        """Return the samples of a file as the codec is given them."""
        samples: np.ndarray[Any, Any] = row_audio(ManifestRow("x", path, ""), self.codec).numpy()
        return samples


class FlatCase(_CodecCase):
    """A Llama over letters and codes."""

    model_type = FLAT
    training: ClassVar[dict[str, Any]] = {"max_steps": 140, "learning_rate": 5e-3}

    def output_lengths(self, adapter: TrainingAdapter, inputs: Any) -> Tensor:
        """Letters, the start, and codes."""
        steps = (inputs["segments"] > 0).sum(1)
        # n letters, a start, and 2 n + 1 frames of so many codes.
        books = int(CODEC["num_codebooks"])
        letters = (steps - 1 - books) // (1 + 2 * books)
        return letters + 1 + books * _frames(letters)


class DelayCase(_CodecCase):
    """A MusicGen decoder and a T5 encoder."""

    model_type = DELAY

    def output_lengths(self, adapter: TrainingAdapter, inputs: Any) -> Tensor:
        """Frames, and a step for each codebook's delay and end."""
        return _frames(inputs["prompt_mask"].sum(1)) + int(CODEC["num_codebooks"])


class DepthCase(_CodecCase):
    """A CSM."""

    model_type = DEPTH

    def output_lengths(self, adapter: TrainingAdapter, inputs: Any) -> Tensor:
        """Letters and frames."""
        letters = (~inputs["is_audio"] & (inputs["segments"] > 0)).sum(1)
        return letters + _frames(letters)


def _frames(letters: Tensor) -> Tensor:
    return letters * int(LETTER_SECONDS * RATE) // int(CODEC["hop_length"]) + 1
