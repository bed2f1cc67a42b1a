"""Encoders of transformers: Whisper, Granite Speech 5, Parakeet, the wav2vec 2.0 family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from voicehub.errors import DataError
from voicehub_asr_llm.config import EncoderConfig
from voicehub_asr_llm.encoders.base import Encoder, EncoderSource, FrontEnd, Prepared
from voicehub_data.audio import extended
from voicehub_hf.encoders import padding_sensitive
from voicehub_hf.features import extractor_settings, feature_lengths, minimum_samples
from voicehub_hf.identity import checkpoint_identity
from voicehub_hf.lengths import minimum_input_length, output_lengths
from voicehub_hf.spec_augment import disable_layer_drop, disable_native_spec_augment
from voicehub_hf.speech_encoders import (
    EncoderParts,
    SpeechEncoder,
    load_speech_encoder,
    read_encoder_parts,
)
from voicehub_hf.truncation import normalises_at_end

if TYPE_CHECKING:
    from numpy.typing import NDArray


class PretrainedFrontEnd(FrontEnd):
    """The feature extractor of a checkpoint, called on one utterance at a time.

    Called on a batch it would normalise over the padding.

    Args:
        parts: of the checkpoint.
    """

    def __init__(self, parts: EncoderParts) -> None:
        self.config, self.extractor = parts.config, parts.feature_extractor
        self.kind, self.input_name = parts.encoder.input_kind, parts.encoder.input_name
        self.features = self.kind == "frames"
        self.sample_rate = int(self.extractor.sampling_rate)
        self.padding_value = float(self.extractor.padding_value)
        if self.kind == "bins":
            self.maximum_samples = int(self.extractor.n_samples)
        self._shortest = minimum_samples(self.config, self.extractor)

    def frames(self, samples: int) -> int:
        return output_lengths(self.config, feature_lengths(self.extractor, samples))

    def minimum_samples(self, frames: int) -> int:
        if frames <= 1:
            return self._shortest
        rows = minimum_input_length(self.config, frames)
        return max(self._shortest, _first_with(rows, self._rows, self._shortest))

    def _rows(self, samples: int) -> int:
        rows: int = feature_lengths(self.extractor, samples)
        return rows

    def prepare(self, audio: NDArray[np.float32]) -> Prepared:
        audio = extended(audio, self._shortest)
        if self.maximum_samples is not None and len(audio) > self.maximum_samples:
            raise DataError(
                f"audio of {len(audio) / self.sample_rate:.1f} s: this encoder sees "
                f"{self.maximum_samples / self.sample_rate:g} s and would cut the rest off. Train "
                "on shorter clips (data.filters.max_duration)."
            )
        features = self.extractor(
            audio,
            sampling_rate=self.sample_rate,
            return_tensors="pt",
            return_attention_mask=True,
            **({} if self.kind == "bins" else {"padding": True}),
        )
        rows = features[self.input_name][0].float()
        valid = self._rows(len(audio))
        # Whisper's rows are turned, and as many as it was trained with; others may have a masked
        # one at the end.
        rows = rows.T if self.kind == "bins" else rows[:valid]
        return Prepared(rows, valid, output_lengths(self.config, valid))

    def fingerprint(self) -> dict[str, Any]:
        settings = extractor_settings(self.extractor)
        return {"front_end": type(self.extractor).__name__, "version": 1, "settings": settings}


def _first_with(rows: int, rows_of: Any, shortest: int) -> int:
    """The fewest samples that give so many rows, by bisection: rows grow with samples."""
    low, high = 0, max(1, shortest)
    while rows_of(high) < rows:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if rows_of(middle) >= rows else (middle, high)
    return high


class PretrainedEncoder(Encoder):
    """An encoder of transformers.

    Args:
        model: of the class that the table entry names.
        entry: of ``voicehub_hf.speech_encoders``.
        hidden_size: width of a frame.
        exact_padding: see ``EncoderConfig``.
    """

    def __init__(
        self, model: nn.Module, entry: SpeechEncoder, hidden_size: int, *, exact_padding: bool
    ) -> None:
        super().__init__()
        self.model, self.entry, self.hidden_size = model, entry, hidden_size
        self.runs_apart = exact_padding and padding_sensitive(model.config)

    def output_frames(self, rows: int) -> int:
        frames: int = output_lengths(self.model.config, rows)
        return frames

    def forward(self, audio: Tensor, audio_lengths: Tensor, rows: Sequence[int]) -> Tensor:
        if not self.runs_apart:
            return self._together(audio, audio_lengths, max(rows))
        groups: dict[int, list[int]] = {}
        for row, length in enumerate(rows):
            groups.setdefault(length, []).append(row)
        pieces = [
            self._together(audio[members, :length], audio_lengths[members], length)
            for length, members in groups.items()
        ]
        longest = max(piece.shape[1] for piece in pieces)
        padded = [nn.functional.pad(p, (0, 0, 0, longest - p.shape[1])) for p in pieces]
        order = [row for members in groups.values() for row in members]
        back = sorted(range(len(order)), key=order.__getitem__)
        return torch.cat(padded)[back]

    def _together(self, audio: Tensor, lengths: Tensor, longest: int) -> Tensor:
        inputs: dict[str, Tensor] = {}
        if self.entry.input_kind == "bins":
            audio = audio.transpose(1, 2)
        else:
            valid = torch.arange(audio.shape[1], device=lengths.device) < lengths[:, None]
            inputs["attention_mask"] = valid.long()
        inputs[self.entry.input_name] = audio.to(self.dtype)
        states: Tensor = self.model(**inputs).last_hidden_state
        if self.entry.input_kind == "bins":
            # It always gives the frames of its longest input.
            states = states[:, : self.output_frames(longest)]
        return states

    def layers(self) -> list[nn.Module]:
        return list(self.model.get_submodule(self.entry.layers).children())

    def tail(self) -> list[nn.Module]:
        entry = self.entry
        if entry.final_norm is None or not normalises_at_end(self.model.config, entry):
            return []
        return [self.model.get_submodule(entry.final_norm)]


class PretrainedSource(EncoderSource):
    """A checkpoint of transformers.

    Args:
        config: section of a run; its path is a directory or Hub id.
        model_type: of transformers.
    """

    def __init__(self, config: EncoderConfig, model_type: str) -> None:
        self.config = config
        self.fetch: dict[str, Any] = {
            "model_type": model_type,
            "revision": config.revision,
            "local_files_only": config.local_files_only or None,
        }
        self.parts = read_encoder_parts(config.path, **self.fetch)
        inner = getattr(self.parts.config, "encoder_config", self.parts.config)
        self.hidden_size = int(inner.hidden_size)
        self.front_end = PretrainedFrontEnd(self.parts)

    def load(self) -> Encoder:
        model = load_speech_encoder(
            self.config.path, dtype=getattr(torch, self.config.dtype), **self.fetch
        )
        disable_native_spec_augment(model)
        disable_layer_drop(model)
        return PretrainedEncoder(
            model, self.parts.encoder, self.hidden_size, exact_padding=self.config.exact_padding
        )

    def identity(self) -> dict[str, Any]:
        return checkpoint_identity(self.config.path, self.parts.config)
