"""Vocos (Siuzdak 2023): ConvNeXt blocks over mel frames, then an inverse STFT.

Read from the published layout: ``config.yaml`` with class paths, of which only those known here
are accepted, and the weights. The package ``vocos`` is not needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from voicehub.errors import ConfigurationError
from voicehub_data.features.stft import istft
from voicehub_flow.vocoders.base import COMPARED, Vocoder
from voicehub_flow.vocoders.directory import (
    describe_file,
    find_weights,
    load_into,
    read_weights,
    require_directory,
    stated,
)
from voicehub_flow.vocoders.neural import NeuralVocoder

CONFIG_FILE = "config.yaml"
_LOUDEST = 1e2  # magnitudes of a frame are cut there, as published


class ConvNeXtBlock(nn.Module):
    """Depth-wise convolution, norm, two linear layers, scaled, beside the identity."""

    def __init__(self, dim: int, inner: int) -> None:
        super().__init__()
        self.dwconv = nn.Conv1d(dim, dim, 7, padding=3, groups=dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.pwconv1 = nn.Linear(dim, inner)
        self.pwconv2 = nn.Linear(inner, dim)
        self.gamma = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        """(B, dim, frames) to the same."""
        hidden = self.norm(self.dwconv(x).transpose(1, 2))
        hidden = self.pwconv2(functional.gelu(self.pwconv1(hidden)))
        return x + (self.gamma * hidden).transpose(1, 2)


class VocosNetwork(nn.Module):
    """Mel frames (B, n_mels, frames) to a waveform.

    Args:
        n_mels, dim, inner, layers: of the blocks.
        n_fft, hop_length: of the inverse STFT.
        padding: ``center`` gives (frames - 1) hops, ``same`` as many hops as frames.
    """

    def __init__(
        self,
        n_mels: int,
        dim: int,
        inner: int,
        layers: int,
        n_fft: int,
        hop_length: int,
        padding: str,
    ) -> None:
        super().__init__()
        self.backbone = nn.ModuleDict(
            {
                "embed": nn.Conv1d(n_mels, dim, 7, padding=3),
                "norm": nn.LayerNorm(dim, eps=1e-6),
                "convnext": nn.ModuleList(ConvNeXtBlock(dim, inner) for _ in range(layers)),
                "final_layer_norm": nn.LayerNorm(dim, eps=1e-6),
            }
        )
        self.head = nn.ModuleDict({"out": nn.Linear(dim, n_fft + 2)})
        self.n_fft, self.hop_length, self.padding = n_fft, hop_length, padding

    def forward(self, mel: Tensor) -> Tensor:
        """(B, n_mels, frames) to (B, samples)."""
        parts = self.backbone
        hidden = parts["norm"](parts["embed"](mel).transpose(1, 2)).transpose(1, 2)
        for block in parts["convnext"]:  # type: ignore[union-attr]
            hidden = block(hidden)
        hidden = parts["final_layer_norm"](hidden.transpose(1, 2))
        magnitude, phase = self.head["out"](hidden).chunk(2, dim=-1)
        spectrum = torch.polar(magnitude.exp().clamp(max=_LOUDEST), phase)
        window = torch.hann_window(self.n_fft, device=mel.device)
        if self.padding == "center":
            return istft(spectrum, self.n_fft, self.hop_length, window)
        return _same_length(spectrum, self.n_fft, self.hop_length, window)


def _same_length(spectrum: Tensor, n_fft: int, hop: int, window: Tensor) -> Tensor:
    """Overlap-add of (B, frames, bins) to as many hops as frames, each frame mid-way in its own."""
    frames = torch.fft.irfft(spectrum, n_fft) * window
    count = frames.shape[1]
    total = (count - 1) * hop + n_fft

    def added(values: Tensor) -> Tensor:
        summed = functional.fold(values.transpose(1, 2), (1, total), (1, n_fft), stride=(1, hop))
        return summed[:, 0, 0]

    weight = added((window * window).expand(1, count, n_fft))
    side = (n_fft - hop) // 2
    return (added(frames) / weight.clamp(min=1e-11))[:, side : total - side]


def load_vocos(
    path: str, given_mel: Mapping[str, Any] | None = None, *, device: str = "cpu"
) -> Vocoder:
    """Read a directory with ``config.yaml`` and weights.

    Raises:
        ConfigurationError: something is missing, or it is another kind of Vocos.
        CheckpointMismatchError: the weights do not fit.
    """
    directory = require_directory(path, "vocos")
    config_path = directory / CONFIG_FILE
    parts = _read(config_path)
    mel = _arguments(parts, "feature_extractor", "MelSpectrogramFeatures", config_path)
    blocks = _arguments(parts, "backbone", "VocosBackbone", config_path)
    head = _arguments(parts, "head", "ISTFTHead", config_path)
    if blocks.get("adanorm_num_embeddings"):
        raise ConfigurationError(f"{config_path}: conditions by bandwidth are not supported.")
    sizes = {"n_fft": mel.get("n_fft", 1024), "hop_length": mel.get("hop_length", 256)}
    for name, value in sizes.items():
        if head.get(name, value) != value:
            raise ConfigurationError(
                f"{config_path}: feature_extractor and head differ in {name}: {value} and "
                f"{head[name]}."
            )
    network = VocosNetwork(
        int(blocks["input_channels"]),
        int(blocks["dim"]),
        int(blocks["intermediate_dim"]),
        int(blocks["num_layers"]),
        int(sizes["n_fft"]),
        int(sizes["hop_length"]),
        str(head.get("padding", "same")),
    )
    weights = find_weights(directory)
    kept = ("backbone.", "head.out.")  # the window and the mel filters are made anew
    state = {n: t.float() for n, t in read_weights(weights).items() if n.startswith(kept)}
    load_into(network, state, weights)
    rate = int(mel.get("sample_rate", 24000))
    found = {
        "sample_rate": rate,
        **sizes,
        "win_length": sizes["n_fft"],
        "n_mels": int(blocks["input_channels"]),
        "f_min": 0.0,
        "f_max": rate / 2,
        "scale": "htk",
        "norm": "none",
        "power": 1.0,
    }
    known = stated(found, given_mel or {}, directory, COMPARED)
    return NeuralVocoder("vocos", network, known, describe_file(weights), device=device)


def _read(path: Path) -> Mapping[str, Any]:
    import yaml

    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigurationError(f"vocoder.path: {path} is missing.") from None
    except (OSError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{path} cannot be read as YAML: {error}.") from error
    if not isinstance(document, dict):
        raise ConfigurationError(f"{path} must hold a mapping.")
    return document


def _arguments(parts: Mapping[str, Any], name: str, expected: str, path: Path) -> dict[str, Any]:
    """The arguments of a part, if it is of the one class that is known here."""
    part = parts.get(name)
    if not isinstance(part, Mapping) or "class_path" not in part:
        raise ConfigurationError(f"{path} says no {name}.class_path: it is no Vocos.")
    kind = str(part["class_path"]).rsplit(".", 1)[-1]
    if kind != expected:
        raise ConfigurationError(
            f"{path}: {name} is a {kind}; only {expected} reads mel frames and is supported."
        )
    return dict(part.get("init_args") or {})
