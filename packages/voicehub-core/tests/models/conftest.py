"""A toy recogniser wrapper that records what happens to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from voicehub.models.auto import AutoModelForSpeechRecognition
from voicehub.models.lifecycle import PreTrainedRecognitionModel
from voicehub.specs import registry
from voicehub.specs.model import ModelTrainingSpec


class ToyRecogniser(PreTrainedRecognitionModel):
    """Holds a dict for a model; everything it is asked to do is written down."""

    default_model_type = "toy-asr"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.calls: list[str] = []
        self.fails: str | None = None

    def _step(self, name: str) -> None:
        self.calls.append(f"{name} {'training' if self.is_training_load else 'plain'}")
        if self.fails == name:
            raise RuntimeError(f"{name} failed")

    def _validate_training_runtime(self) -> None:
        self._step("validate")

    def _load_weights(self) -> None:
        self._step("load")
        self.model = {"encoder": {"layer": "weights"}}

    def _prepare_for_training(self) -> None:
        self._step("prepare")

    def artifact_config(self) -> dict[str, Any]:
        return {"size": 3}

    def _save_family_files(self, directory: Path) -> None:
        (directory / "weights").write_text("w")

    def transcribe(self, audio, **options):  # type: ignore[no-untyped-def]
        return []

    def evaluate(self, manifest, **options):  # type: ignore[no-untyped-def]
        raise AssertionError("not part of these tests")


@pytest.fixture
def toy_class() -> type[ToyRecogniser]:
    return ToyRecogniser


@pytest.fixture(autouse=True)
def toy_spec(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelTrainingSpec]:
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(registry, "_aliases", {})
    spec = ModelTrainingSpec(
        "toy-asr",
        "toys",
        task="automatic-speech-recognition",
        support="native",
        architectures=("ToyForCTC",),
    )
    registry.register_training_spec(spec)
    AutoModelForSpeechRecognition.register("toy-asr", ToyRecogniser)
    yield spec
    AutoModelForSpeechRecognition.unregister("toy-asr")
