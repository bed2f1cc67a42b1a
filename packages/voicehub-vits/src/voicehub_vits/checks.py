"""What is refused of a checkpoint before any of its weights is read."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from voicehub.errors import CheckpointError, ConfigurationError, UnsupportedTrainingError
from voicehub_hf.checkpoint_config import read_config_dict
from voicehub_vits.acoustic import AcousticConfig, check_against_model

_SERVING = (".onnx", ".gguf", ".engine", ".tflite")


def read_vits_config(source: str, **fetch: Any) -> Any:
    """Return the ``VitsConfig`` of a checkpoint; reads ``config.json`` alone.

    Raises:
        CheckpointError: nothing is there.
        ConfigurationError: it is a model of another kind.
    """
    from transformers import VitsConfig

    found = read_config_dict(source, **fetch)
    kind = found.get("model_type")
    if kind != "vits":
        raise ConfigurationError(
            f"{source} holds a model of type '{kind}', a 'vits' one was expected (VITS or MMS-TTS "
            "in the layout of transformers)."
        )
    return VitsConfig.from_dict(found)


def require_trainable_files(source: str) -> None:
    """Refuse directories whose weights cannot train, by their files.

    Raises:
        UnsupportedTrainingError: ONNX and the like.
        CheckpointError: pickles, or no weights at all.
    """
    directory = Path(source)
    if directory.suffix.lower() in _SERVING:
        raise UnsupportedTrainingError(
            f"{source} is a serving format ({directory.suffix}); it has no gradient. Train from "
            "the original checkpoint (config.json and model.safetensors)."
        )
    if not directory.is_dir():
        return
    names = sorted(path.name for path in directory.iterdir())
    if any(name.endswith(".safetensors") for name in names):
        return
    serving = [name for name in names if Path(name).suffix.lower() in _SERVING]
    if serving:
        raise UnsupportedTrainingError(
            f"{source} holds {', '.join(serving)} and no safetensors: a serving format has no "
            "gradient. Train from the original checkpoint."
        )
    pickles = [name for name in names if name.endswith((".bin", ".pt", ".pth", ".ckpt"))]
    if pickles:
        raise CheckpointError(
            f"{source} holds its weights in {', '.join(pickles)}. Such files are pickles, which "
            "can run code when read, and are refused. Save the model again from an installation "
            "that you trust with it: save_pretrained writes model.safetensors."
        )
    raise CheckpointError(f"{source} holds no weights: no *.safetensors file.")


def check_training_settings(
    config: Any,
    acoustic: AcousticConfig | None,
    *,
    generator_only: bool,
    conditioned: bool,
    source: str,
) -> None:
    """Refuse settings that do not fit the model, or each other.

    Args:
        config: ``VitsConfig``.
        acoustic: features of the full objective, where they were given.
        generator_only: whether only the text side trains.
        conditioned: whether a language table conditions the model.
        source: named in messages.

    Raises:
        ConfigurationError: the features of the full objective are missing or not the model's, or
            speaker conditioning contradicts itself.
    """
    if acoustic is None and not generator_only:
        raise ConfigurationError(
            f"{source} does not say which features it was trained with (FFT, hop, window, mel, "
            "segment). Full VITS training needs training_acoustic_config with sampling_rate, "
            "filter_length, hop_length, win_length, num_mel_channels. For MMS-TTS these are "
            "16000, 1024, 256, 1024, 80. Without it only a warm start of the generator's text "
            "side trains: set generator_only=true."
        )
    if acoustic is not None:
        check_against_model(acoustic, config)
    if config.speaker_embedding_size and config.num_speakers < 2 and not conditioned:
        raise ConfigurationError(
            f"{source} has speaker_embedding_size {config.speaker_embedding_size} but a single "
            "speaker and no language table: its conditioning layers would get no input and never "
            "train. Set speaker_embedding_size to 0, or give data of several speakers."
        )
    if config.num_speakers > 1 and not config.speaker_embedding_size:
        raise ConfigurationError(
            f"{source} has {config.num_speakers} speakers and speaker_embedding_size 0: its "
            "config.json contradicts itself."
        )


def assumed_acoustic(config: Any) -> AcousticConfig:
    """Features of a generator-only run, as far as the architecture implies them.

    FFT and hop follow from the bins and the upsample rates; that the window is as long as the FFT
    is an assumption, which the manifest of the result states.
    """
    size = 2 * (int(config.spectrogram_bins) - 1)
    hop = math.prod(config.upsample_rates)
    return AcousticConfig(
        sampling_rate=int(config.sampling_rate),
        filter_length=size,
        hop_length=hop,
        win_length=size,
        num_mel_channels=min(80, size // 8),
        segment_size=hop,
    )
