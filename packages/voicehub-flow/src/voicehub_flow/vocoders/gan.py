"""Directories of HiFi-GAN and BigVGAN generators: the classic layout, and that of transformers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from voicehub.errors import ConfigurationError
from voicehub_flow.vocoders.base import COMPARED, Vocoder
from voicehub_flow.vocoders.directory import (
    describe_file,
    find_weights,
    load_into,
    read_json,
    read_weights,
    require_directory,
    setting,
    stated,
)
from voicehub_flow.vocoders.generator import Generator, GeneratorSizes
from voicehub_flow.vocoders.neural import NeuralVocoder
from voicehub_flow.vocoders.snake import AliasFree, Snake

CONFIG_FILE, FRONT_END_FILE = "config.json", "preprocessor_config.json"
#: How the published systems make mel frames (librosa's filters over magnitudes).
_LIBROSA = {"scale": "slaney", "norm": "slaney", "power": 1.0}
#: Model types of transformers with such a generator; their frames are common logarithms.
_TRANSFORMERS = ("speecht5_hifigan", "hifigan")


def load_hifigan(
    path: str, given_mel: Mapping[str, Any] | None = None, *, device: str = "cpu"
) -> Vocoder:
    """Read a HiFi-GAN directory of either layout.

    The classic one says all of its mel settings. That of transformers says rate, bins and hop; the
    rest comes from ``preprocessor_config.json`` where that is there, else from ``vocoder.mel``.

    Raises:
        ConfigurationError: something is missing, or it is no HiFi-GAN.
        CheckpointMismatchError: the weights do not fit.
    """
    directory = require_directory(path, "hifigan")
    config_path = directory / CONFIG_FILE
    config = read_json(config_path)
    if config.get("model_type") in _TRANSFORMERS:
        return _load_of_transformers(directory, config, given_mel or {}, device)
    if "activation" in config or "snake_logscale" in config:
        raise ConfigurationError(
            f"{config_path} is of a BigVGAN (it names an activation): set vocoder.name=bigvgan."
        )
    weights = find_weights(directory)
    network = Generator(_classic_sizes(config, config_path))
    load_into(network, {n: t.float() for n, t in read_weights(weights).items()}, weights)
    known = stated(_classic_mel(config, config_path), given_mel or {}, directory, COMPARED)
    _check_hop(network.sizes, known, config_path)
    return NeuralVocoder("hifigan", network, known, describe_file(weights), device=device)


def load_bigvgan(
    path: str, given_mel: Mapping[str, Any] | None = None, *, device: str = "cpu"
) -> Vocoder:
    """Read a BigVGAN directory: ``config.json`` and ``bigvgan_generator.pt`` or safetensors.

    Raises:
        ConfigurationError: something is missing, or it is no BigVGAN.
        CheckpointMismatchError: the weights do not fit.
    """
    directory = require_directory(path, "bigvgan")
    config_path = directory / CONFIG_FILE
    config = read_json(config_path)
    kind = setting(config, "activation", config_path)
    if kind not in ("snake", "snakebeta"):
        raise ConfigurationError(f"{config_path}: unknown activation {kind!r}.")
    logarithmic = bool(setting(config, "snake_logscale", config_path))

    def activation(channels: int) -> nn.Module:
        separate = kind == "snakebeta"
        return AliasFree(Snake(channels, separate=separate, logarithmic=logarithmic))

    weights = find_weights(directory)
    network = Generator(_classic_sizes(config, config_path), activation)
    load_into(network, _of_bigvgan(read_weights(weights)), weights)
    known = stated(_classic_mel(config, config_path), given_mel or {}, directory, COMPARED)
    _check_hop(network.sizes, known, config_path)
    return NeuralVocoder("bigvgan", network, known, describe_file(weights), device=device)


def _of_bigvgan(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Names as here; the filters are made anew."""
    kept = {}
    for name, tensor in state.items():
        if name.endswith((".upsample.filter", ".downsample.lowpass.filter")):
            continue
        kept[re.sub(r"^ups\.(\d+)\.0\.", r"ups.\1.", name)] = tensor.float()
    return kept


def _classic_sizes(config: Mapping[str, Any], path: Path) -> GeneratorSizes:
    return GeneratorSizes(
        num_mels=int(setting(config, "num_mels", path)),
        upsample_rates=tuple(setting(config, "upsample_rates", path)),
        upsample_kernel_sizes=tuple(setting(config, "upsample_kernel_sizes", path)),
        upsample_initial_channel=int(setting(config, "upsample_initial_channel", path)),
        resblock_kernel_sizes=tuple(setting(config, "resblock_kernel_sizes", path)),
        resblock_dilation_sizes=tuple(
            tuple(sizes) for sizes in setting(config, "resblock_dilation_sizes", path)
        ),
        resblock=str(config.get("resblock", "1")),
        final_bias=bool(config.get("use_bias_at_final", True)),
        final_tanh=bool(config.get("use_tanh_at_final", True)),
    )


def _classic_mel(config: Mapping[str, Any], path: Path) -> dict[str, Any]:
    rate = int(setting(config, "sampling_rate", path))
    top = config.get("fmax")
    return {
        "sample_rate": rate,
        "n_fft": int(setting(config, "n_fft", path)),
        "hop_length": int(setting(config, "hop_size", path)),
        "win_length": int(setting(config, "win_size", path)),
        "n_mels": int(setting(config, "num_mels", path)),
        "f_min": float(config.get("fmin") or 0.0),
        "f_max": rate / 2 if top is None else float(top),
        **_LIBROSA,
    }


def _check_hop(sizes: GeneratorSizes, known: Mapping[str, Any], path: Path) -> None:
    if sizes.hop_length != known["hop_length"]:
        raise ConfigurationError(
            f"{path}: upsample_rates make {sizes.hop_length} samples a frame, but the hop is "
            f"{known['hop_length']}."
        )


# -- the layout of transformers --------------------------------------------------------------


class Normalised(nn.Module):
    """A generator whose frames are normalised by stored statistics first."""

    mean: Tensor
    scale: Tensor

    def __init__(self, generator: Generator) -> None:
        super().__init__()
        self.generator = generator
        self.register_buffer("mean", torch.zeros(generator.sizes.num_mels))
        self.register_buffer("scale", torch.ones(generator.sizes.num_mels))

    def forward(self, mel: Tensor) -> Tensor:
        """(B, num_mels, frames) to (B, samples)."""
        out: Tensor = self.generator((mel - self.mean[:, None]) / self.scale[:, None])
        return out


def _load_of_transformers(
    directory: Path, config: Mapping[str, Any], given: Mapping[str, Any], device: str
) -> Vocoder:
    path = directory / CONFIG_FILE
    sizes = GeneratorSizes(
        num_mels=int(setting(config, "model_in_dim", path)),
        upsample_rates=tuple(setting(config, "upsample_rates", path)),
        upsample_kernel_sizes=tuple(setting(config, "upsample_kernel_sizes", path)),
        upsample_initial_channel=int(setting(config, "upsample_initial_channel", path)),
        resblock_kernel_sizes=tuple(setting(config, "resblock_kernel_sizes", path)),
        resblock_dilation_sizes=tuple(
            tuple(found) for found in setting(config, "resblock_dilation_sizes", path)
        ),
    )
    if abs(float(config.get("leaky_relu_slope", 0.1)) - 0.1) > 1e-12:
        raise ConfigurationError(f"{path}: only leaky_relu_slope 0.1 is supported.")
    weights = find_weights(directory)
    state = {name: tensor.float() for name, tensor in read_weights(weights).items()}
    network = Normalised(Generator(sizes))
    if not config.get("normalize_before", True):
        state.update(mean=network.mean, scale=network.scale)
    renamed = {_renamed(name): tensor for name, tensor in state.items()}
    load_into(network, renamed, weights)
    found = {
        "sample_rate": int(setting(config, "sampling_rate", path)),
        "n_mels": sizes.num_mels,
        "hop_length": sizes.hop_length,
        **_front_end(directory / FRONT_END_FILE),
    }
    known = stated(found, given, directory, COMPARED)
    _check_hop(sizes, known, path)
    return NeuralVocoder(
        "hifigan",
        network,
        known,
        describe_file(weights),
        device=device,
        log_scale=1.0 / math.log(10.0),
    )


def _renamed(name: str) -> str:
    if name in ("mean", "scale"):
        return name
    return f"generator.{re.sub(r'^upsampler', 'ups', name)}"


def _front_end(path: Path) -> dict[str, Any]:
    """Mel settings of a SpeechT5 feature extractor, whose lengths are milliseconds."""
    if not path.is_file():
        return {}
    config = read_json(path)
    rate = int(setting(config, "sampling_rate", path))
    window = int(setting(config, "win_length", path)) * rate // 1000
    return {
        "sample_rate": rate,
        "n_fft": 2 ** math.ceil(math.log2(window)),
        "win_length": window,
        "hop_length": int(setting(config, "hop_length", path)) * rate // 1000,
        "n_mels": int(setting(config, "num_mel_bins", path)),
        "f_min": float(setting(config, "fmin", path)),
        "f_max": float(setting(config, "fmax", path)),
        **_LIBROSA,
    }
