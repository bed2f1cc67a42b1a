"""The codecs of transformers: EnCodec, DAC, Mimi and X-Codec 2, frozen."""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from voicehub.errors import CheckpointError, ConfigurationError
from voicehub_codec_lm.codecs.base import AudioCodec
from voicehub_hf.identity import checkpoint_identity


class PretrainedCodec(AudioCodec):
    """A codec class of transformers.

    Its parameters take no gradient, and it is no part of any model that trains.

    Args:
        model: in evaluation mode.
        source: where it was read from.
        num_codebooks: use the first so many; None takes all.
        extractor: its feature extractor, where the codec needs one.

    Raises:
        ConfigurationError: the codec has fewer codebooks, or works in a way that has no plain
            codes.
    """

    architecture: ClassVar[str]

    def __init__(
        self, model: Any, source: str, num_codebooks: int | None = None, extractor: Any = None
    ) -> None:
        self.model, self.source, self.extractor = model, source, extractor
        model.requires_grad_(False)
        model.eval()
        config = model.config
        self.sample_rate = int(config.sampling_rate)
        self.hop_length = self._hop_length()
        self.codebook_size = self._codebook_size()
        most = self._most_codebooks()
        self.num_codebooks = most if num_codebooks is None else num_codebooks
        if not 1 <= self.num_codebooks <= most:
            raise ConfigurationError(
                f"{source} has {most} codebooks, and {self.num_codebooks} were asked for."
            )

    def encode(self, audio: Tensor) -> Tensor:
        """Codes of a clip, which is padded with silence to whole frames."""
        missing = -len(audio) % self.hop_length
        padded = torch.nn.functional.pad(audio.float(), (0, missing))
        with torch.no_grad():
            codes = self._encode(padded.to(self.model.device)[None, None])
        return codes.to("cpu", torch.long)

    def decode(self, codes: Tensor) -> Tensor:
        self.require_codes(codes)
        if not codes.shape[1]:
            return torch.zeros(0)
        with torch.no_grad():
            wave = self._decode(codes.to(self.model.device)[None])
        return wave.reshape(-1).float().cpu()

    def weights_digest(self) -> str:
        found = checkpoint_identity(self.source, self.model.config)
        found.pop("source")
        return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()

    @abstractmethod
    def _encode(self, audio: Tensor) -> Tensor:
        """Codes (codebooks, frames) of audio (1, 1, samples)."""

    @abstractmethod
    def _decode(self, codes: Tensor) -> Tensor:
        """Waveform of codes (1, codebooks, frames), of any shape."""

    def _hop_length(self) -> int:
        return int(self.model.config.hop_length)

    def _codebook_size(self) -> int:
        return int(self.model.config.codebook_size)

    def _most_codebooks(self) -> int:
        return int(self.model.config.num_quantizers)


class EncodecCodec(PretrainedCodec):
    """EnCodec (Defossez et al. 2022); the bandwidth follows from the number of codebooks."""

    kind, architecture = "encodec", "EncodecModel"

    def __init__(self, model: Any, source: str, *arguments: Any, **more: Any) -> None:
        if model.config.normalize or model.config.chunk_length_s is not None:
            raise ConfigurationError(
                f"{source}: this EnCodec scales or chunks its input (the 48 kHz model), and its "
                "codes alone do not say the loudness. Use the 24 kHz model."
            )
        super().__init__(model, source, *arguments, **more)
        quantizer = model.quantizer
        sizes = {
            int(quantizer.get_num_quantizers_for_bandwidth(width)): float(width)
            for width in model.config.target_bandwidths
        }
        if self.num_codebooks not in sizes:
            raise ConfigurationError(
                f"{source}: no bandwidth has {self.num_codebooks} codebooks; its bandwidths have "
                f"{', '.join(map(str, sorted(sizes)))}."
            )
        self.bandwidth = sizes[self.num_codebooks]

    def _encode(self, audio: Tensor) -> Tensor:
        codes: Tensor = self.model.encode(audio, bandwidth=self.bandwidth).audio_codes
        return codes[0, 0]

    def _decode(self, codes: Tensor) -> Tensor:
        wave: Tensor = self.model.decode(codes[None], [None]).audio_values
        return wave

    def _most_codebooks(self) -> int:
        quantizer, widths = self.model.quantizer, self.model.config.target_bandwidths
        return max(int(quantizer.get_num_quantizers_for_bandwidth(width)) for width in widths)


class DacCodec(PretrainedCodec):
    """DAC (Kumar et al. 2023)."""

    kind, architecture = "dac", "DacModel"

    def _encode(self, audio: Tensor) -> Tensor:
        codes: Tensor = self.model.encode(audio, n_quantizers=self.num_codebooks).audio_codes
        return codes[0]

    def _decode(self, codes: Tensor) -> Tensor:
        wave: Tensor = self.model.decode(audio_codes=codes).audio_values
        return wave

    def _most_codebooks(self) -> int:
        return int(self.model.config.n_codebooks)


class MimiCodec(PretrainedCodec):
    """Mimi (Defossez et al. 2024)."""

    kind, architecture = "mimi", "MimiModel"

    def _encode(self, audio: Tensor) -> Tensor:
        codes: Tensor = self.model.encode(audio, num_quantizers=self.num_codebooks).audio_codes
        return codes[0]

    def _decode(self, codes: Tensor) -> Tensor:
        wave: Tensor = self.model.decode(codes).audio_values
        return wave

    def _hop_length(self) -> int:
        config = self.model.config
        return round(config.sampling_rate / config.frame_rate)


class XCodec2Codec(PretrainedCodec):
    """X-Codec 2 (Ye et al. 2025): one codebook, made with the help of a speech encoder."""

    kind, architecture = "xcodec2", "Xcodec2Model"

    def _encode(self, audio: Tensor) -> Tensor:
        made = self.extractor(
            audio=audio[0, 0].cpu().numpy(), sampling_rate=self.sample_rate, return_tensors="pt"
        ).to(audio.device)
        codes: Tensor = self.model.encode(**made).audio_codes
        # The extractor appends silence of its own.
        return codes[0, :, : audio.shape[-1] // self.hop_length]

    def _decode(self, codes: Tensor) -> Tensor:
        wave: Tensor = self.model.decode(audio_codes=codes).audio_values
        return wave

    def _codebook_size(self) -> int:
        size = 1
        for levels in self.model.config.quantization_levels:
            size *= int(levels)
        return size

    def _most_codebooks(self) -> int:
        return 1


CODECS: dict[str, type[PretrainedCodec]] = {
    codec.kind: codec for codec in (EncodecCodec, DacCodec, MimiCodec, XCodec2Codec)
}


def load_pretrained(
    source: str,
    *,
    num_codebooks: int | None = None,
    revision: str | None = None,
    local_files_only: bool = False,
    device: str = "cpu",
) -> PretrainedCodec:
    """Read a codec of transformers from a local directory or Hub id.

    Raises:
        ConfigurationError: it is none of the supported types.
        CheckpointError: it cannot be read.
    """
    import transformers

    from voicehub_hf.processors import progress_bars

    local = local_files_only or Path(source).is_dir()
    fetch: dict[str, Any] = {"revision": revision, "local_files_only": local}
    try:
        config = transformers.AutoConfig.from_pretrained(source, **fetch)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{source} cannot be read as a codec: {error}") from error
    codec = CODECS.get(config.model_type)
    if codec is None:
        raise ConfigurationError(
            f"{source} is a {config.model_type!r}, not a codec; expected one of "
            f"{', '.join(CODECS)}, or the directory of a corpus codec."
        )
    extractor = None
    try:
        with progress_bars(shown=not local):
            model = getattr(transformers, codec.architecture).from_pretrained(
                source, use_safetensors=True, **fetch
            )
            if codec is XCodec2Codec:
                extractor = transformers.AutoFeatureExtractor.from_pretrained(source, **fetch)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{source} cannot be read as a codec: {error}") from error
    return codec(model.to(device), source, num_codebooks, extractor)
