"""Recordings of voices made of tones, and a tiny model with random weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from voicehub_xvector.config import LogMelModelConfig
from voicehub_xvector.conformance import voice
from voicehub_xvector.model import LogMelXVector

RATE = 16000

MODEL = {
    "features": {"kind": "log-mel", "sample_rate": RATE, "n_mels": 20},
    "head": {
        "kind": "resnet1d", "block": "basic", "in_channels": 12, "channels": [12], "repeats": [1],
        "kernels": [3], "strides": [1], "dilations": [1], "embedding_size": 8,
    },
}  # fmt: skip


@pytest.fixture(scope="session")
def extractor(tmp_path_factory) -> Path:
    """Directory of the model."""
    return _save_model(tmp_path_factory.mktemp("extractor") / "model")


@pytest.fixture(scope="session")
def write_corpus() -> Callable[..., Path]:
    """Return the function that writes a corpus: directory, lengths in seconds, rate."""
    return _write_corpus


def _save_model(directory: Path) -> Path:
    """A model with random weights, as an artifact."""
    torch.manual_seed(0)
    model = LogMelXVector.from_config(LogMelModelConfig.model_validate(MODEL), ["ann", "bob"])
    model.load()
    model.save_pretrained(directory)
    return directory


def _write_corpus(directory: Path, seconds: list[float], *, rate: int = RATE) -> Path:
    """A manifest with one WAV file for each length; ids u0, u1, ..."""
    directory.mkdir(parents=True, exist_ok=True)
    rows = []
    for number, length in enumerate(seconds):
        speaker, audio = voice(number, round(length * RATE))
        audio = audio[:: RATE // rate]
        soundfile.write(directory / f"u{number}.wav", np.asarray(audio), rate, subtype="FLOAT")
        rows.append({"id": f"u{number}", "audio_filepath": f"u{number}.wav", "speaker": speaker})
    manifest = directory / "manifest.jsonl"
    manifest.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return manifest
