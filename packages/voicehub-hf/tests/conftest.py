"""Tiny random checkpoints of the five CTC classes, made once a session; no network."""

from __future__ import annotations

import os

# Read when transformers is first imported, which tests do inside functions.
os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import pytest

from voicehub_hf.encoders import CTC_ENCODERS

VOCABULARY = ("<pad>", "<unk>", "|", *"abcdefghijklmnopqrstuvwxyz'")
MODEL_TYPES = tuple(CTC_ENCODERS)


@pytest.fixture(scope="session")
def vocabulary() -> tuple[str, ...]:
    return VOCABULARY


@pytest.fixture(params=MODEL_TYPES)
def model_type(request) -> str:
    return request.param


@pytest.fixture(scope="session")
def checkpoint_of(tmp_path_factory):
    """Return the directory of a tiny checkpoint; the same for the same settings."""
    from voicehub_hf.testing import make_tiny_ctc_checkpoint

    made = {}

    def make(model_type, **settings):
        key = (model_type, repr(sorted(settings.items())))
        if key not in made:
            folder = tmp_path_factory.mktemp(model_type)
            made[key] = make_tiny_ctc_checkpoint(folder, model_type, VOCABULARY, **settings)
        return made[key]

    return make


@pytest.fixture
def load(checkpoint_of):
    """Load a fresh copy of a tiny checkpoint: (model, processor)."""
    from voicehub_hf.loading import load_ctc

    def loaded(model_type, **settings):
        return load_ctc(checkpoint_of(model_type, **settings))

    return loaded


@pytest.fixture(scope="session")
def draw_waveforms():
    """Draw waveforms of the given numbers of samples."""

    def draw(*lengths: int, seed: int = 0) -> list[np.ndarray]:
        generator = np.random.default_rng(seed)
        return [(generator.standard_normal(n) * 0.1).astype(np.float32) for n in lengths]

    return draw
