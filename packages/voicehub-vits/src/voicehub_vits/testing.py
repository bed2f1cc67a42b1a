"""Tiny random checkpoints of ``VitsModel`` and files of speech, for tests without a network."""

from __future__ import annotations

import json
import wave
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from voicehub_hf.processors import progress_bars
from voicehub_vits.network.initial import draw_weights
from voicehub_vits.text import build_tokenizer

#: Sizes of some ten thousand parameters: 64-point FFT, hop 16.
SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "ffn_dim": 16,
    "flow_size": 8,
    "spectrogram_bins": 33,
    "upsample_initial_channel": 16,
    "upsample_rates": [4, 4],
    "upsample_kernel_sizes": [8, 8],
    "resblock_kernel_sizes": [3],
    "resblock_dilation_sizes": [[1, 3]],
    "depth_separable_num_layers": 1,
    "duration_predictor_num_flows": 2,
    "duration_predictor_filter_channels": 16,
    "prior_encoder_num_flows": 2,
    "prior_encoder_num_wavenet_layers": 1,
    "posterior_encoder_num_wavenet_layers": 1,
    "wavenet_kernel_size": 3,
    "sampling_rate": 4000,
}
#: Features that fit them.
ACOUSTIC: dict[str, Any] = {
    "sampling_rate": 4000,
    "filter_length": 64,
    "hop_length": 16,
    "win_length": 64,
    "num_mel_channels": 12,
    "segment_size": 256,
}


def make_tiny_checkpoint(
    directory: str | Path, texts: Iterable[str], *, seed: int = 0, **config_overrides: Any
) -> Path:
    """Write a random ``VitsModel`` with its tokenizer, as a published one lies on disk.

    Args:
        directory: created where missing.
        texts: their characters are the vocabulary.
        seed: of the weights; torch's global random state is left as it was.
        **config_overrides: settings of ``VitsConfig`` over :data:`SIZES`.
    """
    from transformers import VitsConfig, VitsModel

    front_end, _ = build_tokenizer(texts)
    config = VitsConfig(**{**SIZES, "vocab_size": len(front_end), **config_overrides})
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        model = VitsModel(config)
    draw_weights(model, seed)
    target = Path(directory)
    with progress_bars(shown=False):
        model.save_pretrained(target)
        front_end.save(target)
    return target


def write_wave(path: Path, audio: np.ndarray[Any, Any]) -> Path:
    """Write samples in [-1, 1] as a WAV file at the rate of :data:`SIZES`."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SIZES["sampling_rate"])
        file.writeframes((audio * 32767.0).astype("<i2").tobytes())
    return path


def write_manifest(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Write rows as JSON lines."""
    path.write_text("".join(json.dumps(dict(row)) + "\n" for row in rows), encoding="utf-8")
    return path
