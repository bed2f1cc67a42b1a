"""Fixtures of the contract tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from recipes import WRAPPED, Wrapped

from voicehub.models.auto import AutoModelForTextToSpeech
from voicehub.specs import registry


@pytest.fixture
def wrapped_type(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The toy wrapper's model type, registered for one test."""
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    registry.register_training_spec(WRAPPED)
    AutoModelForTextToSpeech.register(WRAPPED.model_type, Wrapped)
    yield WRAPPED.model_type
    AutoModelForTextToSpeech.unregister(WRAPPED.model_type)


@pytest.fixture
def checkpoint_dir(tmp_path: Path) -> Path:
    """A directory that stands for a local checkpoint of a model."""
    directory = tmp_path / "pretrained"
    directory.mkdir()
    return directory
