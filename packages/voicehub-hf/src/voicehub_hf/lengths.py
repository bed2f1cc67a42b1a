"""Exact output lengths of the speech encoders.

Every function takes Python integers, NumPy integer arrays or torch integer tensors and returns
the same kind, so that a pre-flight over a million clips is one vectorised call. The formula of
one convolution is that of ``torch.nn.Conv1d``: ``floor((n + 2 p - k) / s) + 1``.

Importing this module loads neither torch nor transformers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

from voicehub.errors import ConfigurationError

Lengths = TypeVar("Lengths")


class Convolution(NamedTuple):
    """What decides the output length of one convolution over time."""

    kernel: int
    stride: int
    padding: int = 0


def time_convolutions(config: Any) -> tuple[Convolution, ...]:
    """Return every length-changing convolution between the model's input and its logits.

    Args:
        config: Config of one of the CTC classes, of Whisper or of Granite Speech 5.

    Raises:
        ConfigurationError: The config is of another model type.
    """
    return (*front_convolutions(config), *adapter_convolutions(config))


def front_convolutions(config: Any) -> tuple[Convolution, ...]:
    """Return the convolutions between the model's input and its first hidden states."""
    model_type = getattr(config, "model_type", None)
    if model_type in ("wav2vec2", "hubert", "wavlm"):
        return tuple(
            Convolution(int(kernel), int(stride))
            for kernel, stride in zip(config.conv_kernel, config.conv_stride, strict=True)
        )
    if model_type == "wav2vec2-bert":
        return ()
    if model_type in ("parakeet_ctc", "parakeet_encoder"):
        encoder = getattr(config, "encoder_config", config)
        kernel = int(encoder.subsampling_conv_kernel_size)
        layer = Convolution(kernel, encoder.subsampling_conv_stride, (kernel - 1) // 2)
        halvings = int(encoder.subsampling_factor).bit_length() - 1
        return (layer,) * halvings
    if model_type == "whisper":
        return (Convolution(3, 1, 1), Convolution(3, 2, 1))
    if model_type in ("granite_speech5_ctc", "granite_speech5_encoder"):
        # Pairs of frames are pooled; an odd last one goes.
        layers = getattr(config, "encoder_config", config).subsample_layers
        return (Convolution(2, 2),) * len(layers)
    raise ConfigurationError(f"No length formula for a config of model type '{model_type}'.")


def adapter_convolutions(config: Any) -> tuple[Convolution, ...]:
    """Return the convolutions behind the encoder (``add_adapter``), none in most checkpoints.

    Their padding is what the modules use: 1 for wav2vec2 and WavLM whatever the kernel, half the
    stride for W2V-BERT. The length methods of transformers assume paddings that fit the default
    kernel alone.
    """
    if not getattr(config, "add_adapter", False):
        return ()
    padding = config.adapter_stride // 2 if config.model_type == "wav2vec2-bert" else 1
    layer = Convolution(config.adapter_kernel_size, config.adapter_stride, padding)
    return (layer,) * int(config.num_adapter_layers)


def hidden_lengths(config: Any, input_lengths: Lengths) -> Lengths:
    """Return the frames of the hidden states that enter the encoder: those that masks cover.

    Arguments as for :func:`output_lengths`, which it equals unless the model has an adapter.
    """
    return convolved_lengths(front_convolutions(config), input_lengths)


def output_lengths(config: Any, input_lengths: Lengths) -> Lengths:
    """Return how many frames the model emits for inputs of these lengths.

    Args:
        config: Config of one of the CTC classes, of Whisper or of Granite Speech 5.
        input_lengths: Samples for waveform models, valid feature frames for log-mel models.
            Integers: an ``int``, a NumPy array or a torch tensor.

    Returns:
        Frames, of the same kind; 0 where the input is too short to give one.
    """
    return convolved_lengths(time_convolutions(config), input_lengths)


def convolved_lengths(convolutions: Sequence[Convolution], lengths: Lengths) -> Lengths:
    """Apply the formula of each convolution in turn; lengths never fall below 0."""
    current: Any = lengths
    for kernel, stride, padding in convolutions:
        grown = (current + (2 * padding - kernel)) // stride + 1
        # An empty input has an empty output, even where padding alone would fill a kernel.
        current = _not_negative(grown) * (current > 0)
    return current  # type: ignore[no-any-return]


def minimum_input_length(config: Any, frames: int = 1) -> int:
    """Return the shortest input (samples or feature frames) that gives ``frames`` frames."""
    length = frames
    for kernel, stride, padding in reversed(time_convolutions(config)):
        length = max(1, (length - 1) * stride + kernel - 2 * padding)
    return length


def downsampling(config: Any) -> int:
    """Return the input steps (samples or feature frames) between two output frames."""
    product = 1
    for convolution in time_convolutions(config):
        product *= convolution.stride
    return product


def _not_negative(lengths: Any) -> Any:
    return max(0, lengths) if isinstance(lengths, int) else lengths.clip(0)
