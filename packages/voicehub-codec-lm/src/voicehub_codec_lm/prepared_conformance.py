"""Tiny models for the conformance kit whose data is prepared: rows follow a rule of their own."""

from __future__ import annotations

import tempfile
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors.torch import save_model
from torch import Tensor

from voicehub.adapters.auto import AutoTrainingAdapter
from voicehub.adapters.base import TrainingAdapter
from voicehub.testing import ConformanceCase
from voicehub_codec_lm.prepared import PreparedModel

VOCABULARY = 24
CHANNELS = 2
#: Each value decides the next.
STEP, OFFSET = 5, 3


def chain(first: int, length: int) -> Tensor:
    """Return ``length`` ids, int64, each ``(5 x + 3) mod 24`` of the one before."""
    values = [first % VOCABULARY]
    while len(values) < length:
        values.append((STEP * values[-1] + OFFSET) % VOCABULARY)
    return torch.tensor(values)


def _with_random_labels(items: Sequence[Any], seed: int) -> list[Any]:
    generator = torch.Generator().manual_seed(seed)
    draws = [
        torch.randint(0, VOCABULARY, item["labels"].shape, generator=generator) for item in items
    ]
    return [{**item, "labels": labels} for item, labels in zip(items, draws, strict=True)]


class _PreparedCase(ConformanceCase):
    lengths = (4, 12)
    # The norms compute in float32 whatever their input is.
    float64 = False
    training: ClassVar[dict[str, Any]] = {"max_steps": 60, "learning_rate": 1e-2}
    exemptions: ClassVar[dict[str, str]] = {
        "padding_garbage": "batches hold token ids, where a number out of the vocabulary has no "
        "meaning; padding_mates shows that padding does not matter",
    }

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="voicehub-prepared-")

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process makes a case of its own, and does not delete the folder of this one."""
        return type(self), ()

    @abstractmethod
    def network(self, dropout: float) -> Any:
        """A model of random weights."""

    def build(self, *, dropout: float = 0.0) -> TrainingAdapter:
        """Return a fresh adapter over a checkpoint that was just drawn."""
        path = Path(tempfile.mkdtemp(dir=self._folder.name))
        network = self.network(dropout)
        network.config.save_pretrained(path)
        # Where a process group stands, transformers' own save writes on its first rank alone.
        save_model(network, str(path / "model.safetensors"), metadata={"format": "pt"})
        return AutoTrainingAdapter.from_model(
            PreparedModel.from_pretrained(path, model_type=self.model_type)
        )


class _LlamaCase(_PreparedCase):
    """A Llama over sequences that follow a rule."""

    def network(self, dropout: float) -> Any:
        from transformers import LlamaConfig, LlamaForCausalLM

        config = LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64,
            attention_dropout=dropout,
        )  # fmt: skip
        return LlamaForCausalLM(config)

    def item(self, length: int, seed: int) -> dict[str, Tensor]:
        """Return a sequence; all of it is asked for."""
        ids = chain(seed, length)
        return {"input_ids": ids, "labels": ids.clone()}

    def shuffled(self, items: Sequence[Any], seed: int) -> list[Any]:
        """Ask for ids that nothing decides."""
        return _with_random_labels(items, seed)

    def output_lengths(self, adapter: TrainingAdapter, inputs: Any) -> Tensor:
        """Positions."""
        lengths: Tensor = (inputs["labels"] != -100).sum(1)
        return lengths


class OrpheusCase(_LlamaCase):
    """Orpheus is a Llama."""

    model_type = "orpheus"


class LlasaCase(_LlamaCase):
    """Llasa is a Llama."""

    model_type = "llasa"


class DiaCase(_PreparedCase):
    """A tiny Dia: letters in, a chain of codes for each codebook out."""

    model_type = "dia"

    def network(self, dropout: float) -> Any:
        from transformers import DiaConfig, DiaForConditionalGeneration

        sizes = {
            "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "head_dim": 8,
            "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64,
        }  # fmt: skip
        decoder = {
            "num_channels": CHANNELS, "vocab_size": VOCABULARY + 4, "cross_head_dim": 8,
            "cross_num_attention_heads": 2, "cross_num_key_value_heads": 1,
            "cross_hidden_size": 16, **sizes,
        }  # fmt: skip
        config = DiaConfig(
            encoder_config={"vocab_size": VOCABULARY, **sizes},
            decoder_config=decoder,
            pad_token_id=VOCABULARY + 1,
            eos_token_id=VOCABULARY,
            bos_token_id=VOCABULARY + 2,
            delay_pattern=[0, 1],
        )
        return DiaForConditionalGeneration(config)

    def item(self, length: int, seed: int) -> dict[str, Tensor]:
        """Return text, the codes before (steps, books), and those asked for."""
        codes = torch.stack([chain(seed + book, length + 1) for book in range(CHANNELS)])
        return {
            "input_ids": codes[0, :3],
            "decoder_input_ids": codes[:, :-1].T.contiguous(),
            "labels": codes[:, 1:].contiguous(),
        }

    def shuffled(self, items: Sequence[Any], seed: int) -> list[Any]:
        """Ask for codes that nothing decides."""
        return _with_random_labels(items, seed)

    def output_lengths(self, adapter: TrainingAdapter, inputs: Any) -> Tensor:
        """Steps of the first codebook."""
        lengths: Tensor = (inputs["labels"][:, 0] != -100).sum(1)
        return lengths
