"""A tiny model for the conformance kit, which spells tones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from voicehub.adapters.base import TrainingAdapter
from voicehub_asr_llm.config import AsrLlmModelConfig
from voicehub_asr_llm.data import AsrLlmCollator, AsrLlmDataset, AsrLlmItem, Silence
from voicehub_asr_llm.model import AsrLlm
from voicehub_asr_llm.specs import MODEL_TYPE
from voicehub_data.augment import Compose, Gain, SilenceInjection, Speed
from voicehub_data.corpus_case import CorpusCase, exchanged
from voicehub_data.synthetic.tones import spelt_by_tones

_RATE = 16000
#: One tone a letter, in Hz.
_TONES = {"a": 300.0, "b": 700.0, "c": 1500.0, "d": 3000.0}
_LETTER_SECONDS, _STRIDE = 0.08, 4
#: Frames of 20 ms by three convolutions, and one layer: the kit runs hundreds of updates.
_ENCODER = {
    "feat_proj_dropout": 0.0, "final_dropout": 0.0, "num_hidden_layers": 1,
    "conv_dim": (16, 16, 16), "conv_kernel": (10, 8, 4), "conv_stride": (10, 8, 4),
}  # fmt: skip


def tones(length: int, seed: int) -> tuple[str, np.ndarray[Any, Any]]:
    """Return so many letters, and the sound that spells them."""
    generator = np.random.default_rng(seed)
    letters = "".join(generator.choice(list(_TONES), size=length))
    return letters, spelt_by_tones(letters, _TONES, _LETTER_SECONDS, _RATE, generator)


class AsrLlmCase(CorpusCase):
    """A frozen wav2vec 2.0, a projector, and adapters on a frozen Llama. Lengths are letters."""

    model_type = MODEL_TYPE
    lengths = (2, 6)
    sample_rate = _RATE
    # The norms of Llama compute in float32 whatever their input is.
    float64 = False
    training: ClassVar[dict[str, Any]] = {"max_steps": 100, "learning_rate": 1e-2}

    def __init__(self, checkpoints: Path | None = None) -> None:
        super().__init__()
        self._checkpoints = checkpoints or self.directory
        self._wrapper: AsrLlm | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process has a folder of its own, and reads the checkpoints of this one.

        It could not write its own: transformers saves on the first of joined ranks alone.
        """
        self._bases()
        return type(self), (self._checkpoints,)

    def _bases(self) -> tuple[Path, Path]:
        """Directories of encoder and decoder, which are drawn when first asked for."""
        from voicehub_asr_llm.testing import make_tiny_decoder
        from voicehub_hf.testing_encoders import make_tiny_encoder_checkpoint

        encoder, decoder = self._checkpoints / "encoder", self._checkpoints / "decoder"
        if not decoder.is_dir():
            make_tiny_encoder_checkpoint(encoder, "wav2vec2", **_ENCODER)
            make_tiny_decoder(decoder)
        return encoder, decoder

    def wrapper(self, dropout: float = 0.0) -> AsrLlm:
        """A lazy wrapper over two checkpoints."""
        encoder, decoder = self._bases()
        config = {
            "recipe": "lora",
            "encoder": {"path": str(encoder)},
            "projector": {"stride": _STRIDE, "hidden_size": 48},
            "decoder": {
                "path": str(decoder),
                "lora": {"rank": 8, "alpha": 16, "dropout": dropout},
            },
            "prompt": {"plain": "spell"},
        }
        return AsrLlm.from_config(AsrLlmModelConfig.model_validate(config))

    @property
    def described(self) -> AsrLlm:
        """One wrapper for what needs no weights."""
        if self._wrapper is None:
            self._wrapper = self.wrapper()
        return self._wrapper

    def item(self, length: int, seed: int) -> AsrLlmItem:
        """Return an item as the data set yields it."""
        letters, audio = tones(length, seed)
        prepared = self.described.front_end.prepare(audio)
        labels = self.described.chat.encode(letters).ids
        seconds = len(audio) / _RATE
        return AsrLlmItem(f"{length}-{seed}", prepared, labels, "plain", letters, seconds, None)

    def collate(self, items: Sequence[Any]) -> dict[str, Any]:
        """Return the batch as the collator of a run makes it."""
        model = self.described
        return AsrLlmCollator(model.front_end, model.chat, _STRIDE)(items)

    def shuffled(self, items: Sequence[Any], seed: int) -> list[AsrLlmItem]:
        """Give each sound the letters of the next."""
        return exchanged(items, "labels", "text")

    def dataset(self, size: int, seed: int) -> AsrLlmDataset:
        """Return the real data set over files, with augmentation and silences."""
        model = self.described
        rows = []
        for number in range(size):
            letters, audio = tones(2 + number % 4, seed * 1000 + number)
            rows.append(self.recorded(f"{seed}-{number}", audio, letters, row=number + 1))
        return AsrLlmDataset(
            rows,
            [model.chat.encode(row.text).ids for row in rows],
            ["plain"] * size,
            model.front_end,
            minimum_frames=_STRIDE,
            augment=Compose([Speed((0.9, 1.0, 1.1)), Gain((-3.0, 3.0))]),
            silence=Silence(SilenceInjection(0.3), model.chat.encode("").ids),
        )

    def output_lengths(self, adapter: TrainingAdapter, inputs: Any) -> Tensor:
        """Prompt, what the projector makes of the encoder's frames, and the transcript."""
        network: Any = adapter.module
        prompt = self.described.chat.prompts["plain"]
        around = len(prompt.before) + len(prompt.after) - 1
        outputs = [network.encoder.output_frames(rows) // _STRIDE for rows in inputs["row_counts"]]
        return torch.tensor(outputs) + inputs["label_counts"] + around
