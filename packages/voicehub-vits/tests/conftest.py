"""A corpus of tones that spell letters, and random checkpoints that know the letters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from voicehub_vits.conformance import tones
from voicehub_vits.testing import make_tiny_checkpoint, write_manifest, write_wave

TEXTS = ("abcd", "dabc", "ccab", "badbad", "dcbaab", "abdca")
CONDITIONED: dict[str, Any] = {"num_speakers": 3, "speaker_embedding_size": 4}


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
