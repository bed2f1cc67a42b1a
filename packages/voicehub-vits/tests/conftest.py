"""A corpus of tones that spell letters, and random checkpoints that know the letters."""

from __future__ import annotations

import json
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from voicehub_vits.conformance import tones
from voicehub_vits.testing import ACOUSTIC, make_tiny_checkpoint

RATE = ACOUSTIC["sampling_rate"]
TEXTS = ("abcd", "dabc", "ccab", "badbad", "dcbaab", "abdca")
CONDITIONED: dict[str, Any] = {"num_speakers": 3, "speaker_embedding_size": 4}


def write_wave(path: Path, audio: np.ndarray[Any, Any], rate: int = RATE) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((audio * 32767.0).astype("<i2").tobytes())
    return path


def write_manifest(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``train.jsonl`` of six utterances by two speakers in two languages, and ``test.jsonl``."""
    folder = tmp_path_factory.mktemp("tones")
    rows = []
    for number, text in enumerate(TEXTS):
        write_wave(folder / f"{number}.wav", tones(text, number))
        voice = {
            "speaker": "anna" if number % 2 else "bert",
            "language": "de" if number % 2 else "en",
        }
        rows.append({"id": f"t{number}", "audio_filepath": f"{number}.wav", "text": text, **voice})
    write_manifest(folder / "train.jsonl", rows)
    write_manifest(folder / "test.jsonl", rows[:2])
    return folder


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_checkpoint(tmp_path_factory.mktemp("single") / "model", ["abcd"])


@pytest.fixture(scope="session")
def voices_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("several")
    return make_tiny_checkpoint(folder / "model", ["abcd"], seed=1, **CONDITIONED)


@pytest.fixture
def run_config(corpus: Path, tmp_path: Path) -> Callable[..., Any]:
    """A run over the corpus; ``model`` and ``data`` are merged into its sections."""
    from voicehub_vits.config import VitsRunConfig

    def build(model: dict[str, Any], data: dict[str, Any] | None = None, **more: Any) -> Any:
        training = {
            "output_dir": str(tmp_path / "run"),
            "max_steps": 2,
            "per_device_train_batch_size": 3,
            "learning_rate": 1e-3,
            "logging_steps": 1,
            "save_strategy": "no",
            "use_cpu": True,
            **more.pop("training", {}),
        }
        sections = {
            "model": {"discriminator": {"width": 0.01}, **model},
            "data": {"train": str(corpus / "train.jsonl"), **(data or {})},
        }
        return VitsRunConfig.model_validate(
            {"family": "vits", "model_type": "vits", "training": training, **sections, **more}
        )

    return build
