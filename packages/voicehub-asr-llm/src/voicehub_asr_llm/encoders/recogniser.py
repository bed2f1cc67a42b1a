"""Encoders of recognisers that VoiceHub has trained, by the Auto class of the core.

Any recogniser can be one whose wrapper has ``encoder_size`` and ``front_end`` and whose network
has ``encode(rows, lengths)``, ``output_frames(rows)`` and ``blocks``; ``ctc-logmel`` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from voicehub.errors import ConfigurationError
from voicehub.models.auto import AutoModelForSpeechRecognition
from voicehub_asr_llm.config import EncoderConfig
from voicehub_asr_llm.encoders.base import Encoder, EncoderSource, FrontEnd, Prepared
from voicehub_data.audio import extended
from voicehub_hf.identity import checkpoint_identity

if TYPE_CHECKING:
    from numpy.typing import NDArray


class RecogniserFrontEnd(FrontEnd):
    """The recogniser's own front end.

    Args:
        inner: of the recogniser.
    """

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.sample_rate = int(inner.sample_rate)

    def frames(self, samples: int) -> int:
        return int(self.inner.frames(samples))

    def minimum_samples(self, frames: int) -> int:
        shortest = int(self.inner.minimum_samples)
        samples = shortest + (frames - 1) * int(self.inner.hop_samples)
        while samples > shortest and self.frames(samples - 1) >= frames:
            samples -= 1
        while self.frames(samples) < frames:
            samples += 1
        return max(shortest, samples)

    def prepare(self, audio: NDArray[np.float32]) -> Prepared:
        prepared = self.inner.prepare(extended(audio, int(self.inner.minimum_samples)))
        return Prepared(prepared.rows, prepared.valid, prepared.frames)

    def fingerprint(self) -> dict[str, Any]:
        fingerprint: dict[str, Any] = self.inner.fingerprint()
        return fingerprint


class RecogniserEncoder(Encoder):
    """The network of a recogniser below its output layer.

    Args:
        model: the network.
        hidden_size: width of a frame.
    """

    def __init__(self, model: nn.Module, hidden_size: int) -> None:
        super().__init__()
        self.model, self.hidden_size = model, hidden_size
        # The output layer has no part in what follows.
        self.model.head = nn.Identity()

    def output_frames(self, rows: int) -> int:
        formula: Any = self.model.output_frames
        return int(formula(rows))

    def forward(self, audio: Tensor, audio_lengths: Tensor, rows: Sequence[int]) -> Tensor:
        encode: Any = self.model.encode
        states: Tensor = encode(audio.to(self.dtype), audio_lengths)[0]
        return states

    def layers(self) -> list[nn.Module]:
        blocks: Any = self.model.blocks
        return list(blocks)

    def tail(self) -> list[nn.Module]:
        norm: Any = self.model.output_norm
        return [norm]


class RecogniserSource(EncoderSource):
    """A portable artifact of a recogniser.

    Args:
        config: section of a run.
        directory: of the artifact.

    Raises:
        ConfigurationError: it cannot be an encoder.
    """

    def __init__(self, config: EncoderConfig, directory: Path) -> None:
        self.config, self.directory = config, directory
        wrapper: Any = AutoModelForSpeechRecognition.from_pretrained(directory)
        if not hasattr(wrapper, "encoder_size"):
            raise ConfigurationError(
                f"model.encoder.path: {directory} holds a '{wrapper.model_type}', which gives no "
                "encoder. Expected a 'ctc-logmel', or a checkpoint of transformers."
            )
        self.hidden_size = int(wrapper.encoder_size)
        self.front_end = RecogniserFrontEnd(wrapper.front_end)

    def load(self) -> Encoder:
        wrapper: Any = AutoModelForSpeechRecognition.from_pretrained(
            self.directory, lazy_load=False
        )
        network = wrapper.model.eval().to(getattr(torch, self.config.dtype))
        return RecogniserEncoder(network, self.hidden_size)

    def identity(self) -> dict[str, Any]:
        return checkpoint_identity(str(self.directory), None)
