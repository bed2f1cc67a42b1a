"""A corpus of tones that can be learnt in seconds, and tiny pretrained checkpoints; no network."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

# Read when transformers is first imported.
os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import pytest
import soundfile
import torch

VOCABULARY = ("<pad>", "<unk>", "|", *"abcdefghijklmnopqrstuvwxyz'")
#: One tone a letter, in Hz.
TONES = {"a": 300.0, "b": 700.0, "c": 1500.0, "d": 3000.0}
RATE = 16000
LETTER_SECONDS = 0.12


def speak(text: str, generator: np.random.Generator, rate: int = RATE) -> np.ndarray:
    """A tone for each letter, twice as long a silence for a space, a little noise over it all."""
    pieces = []
    for letter in f" {text} ":
        seconds = LETTER_SECONDS if letter in TONES else 2 * LETTER_SECONDS
        time = np.arange(int(seconds * rate)) / rate
        frequency = TONES.get(letter)
        tone = np.zeros_like(time) if frequency is None else np.sin(2 * np.pi * frequency * time)
        pieces.append(0.3 * tone * np.hanning(len(time)))
    audio = np.concatenate(pieces)
    return (audio + 0.003 * generator.standard_normal(len(audio))).astype(np.float32)


@pytest.fixture(scope="session")
def tone_corpus(tmp_path_factory) -> Callable[..., Path]:
    """Return a function that writes a manifest of so many rows and gives its path."""
    made: dict[object, Path] = {}

    def make(count: int, seed: int = 0, rate: int = RATE, name: str = "corpus") -> Path:
        key = (count, seed, rate, name)
        if key in made:
            return made[key]
        folder = tmp_path_factory.mktemp(name)
        generator = np.random.default_rng(seed)
        lines = []
        for number in range(count):
            words = [
                "".join(generator.choice(list(TONES), size=int(generator.integers(1, 4))))
                for _ in range(int(generator.integers(1, 3)))
            ]
            text = " ".join(words)
            audio = speak(text, generator, rate)
            file = f"{number:03d}.wav"
            soundfile.write(folder / file, audio, rate, subtype="FLOAT")
            row = {"id": f"{name}-{number}", "audio_filepath": file, "text": text}
            lines.append(json.dumps({**row, "duration": len(audio) / rate}))
        path = folder / "manifest.jsonl"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        made[key] = path
        return path

    return make


@pytest.fixture(scope="session")
def checkpoint_of(tmp_path_factory) -> Callable[..., Path]:
    """Return the directory of a tiny random checkpoint; the same for the same settings."""
    from voicehub_hf.testing import make_tiny_ctc_checkpoint

    made: dict[object, Path] = {}

    def make(model_type: str, vocabulary: tuple[str, ...] = VOCABULARY, **settings) -> Path:
        key = (model_type, vocabulary, repr(sorted(settings.items())))
        if key not in made:
            folder = tmp_path_factory.mktemp(model_type)
            made[key] = make_tiny_ctc_checkpoint(folder, model_type, vocabulary, **settings)
        return made[key]

    return make


@pytest.fixture(autouse=True)
def one_thread():
    """Two cores are shared by many processes here; threads of one wait for those of others."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def spoken() -> Callable[..., np.ndarray]:
    """``speak`` with a seeded generator."""

    def make(text: str, seed: int = 0, rate: int = RATE) -> np.ndarray:
        return speak(text, np.random.default_rng(seed), rate)

    return make


@pytest.fixture(scope="session")
def log_mel_values() -> Callable[..., dict]:
    """Return the function below."""
    return _log_mel_values


def _log_mel_values(train: Path, evaluation: Path | None, output: Path, **training) -> dict:
    """Values of a small run of the log-mel model, as a preset would compose them."""
    return {
        "family": "asr-ctc",
        "model_type": "ctc-logmel",
        "name": "test",
        "model": {"hidden_size": 48, "num_blocks": 2, "num_heads": 2, "n_mels": 40,
                  "attention_every": 2, "kernel_size": 15, "dropout": 0.0},
        "data": {"train": str(train), **({"eval": str(evaluation)} if evaluation else {}),
                 "batches": {"batch_size": 4}},
        "training": {"output_dir": str(output), "use_cpu": True, "learning_rate": 5e-3,
                     "num_train_epochs": 1, "logging_steps": 5, "save_strategy": "no",
                     **training},
    }  # fmt: skip


@pytest.fixture
def log_mel_run(tmp_path) -> Callable[..., dict]:
    """Return ``log_mel_values`` with an output directory of the test's own."""

    def make(train: Path, evaluation: Path | None = None, **training) -> dict:
        return _log_mel_values(train, evaluation, tmp_path / "run", **training)

    return make


@pytest.fixture
def pretrained_run(tmp_path) -> Callable[..., dict]:
    """Values of a small run of a pretrained class."""

    def make(checkpoint: Path, train: Path, kind: str, *, data=None, model=None, **training):
        return {
            "family": "asr-ctc",
            "model_type": f"ctc-{kind}",
            "model": {"path": str(checkpoint), **(model or {})},
            "data": {"train": str(train), "batches": {"batch_size": 4}, **(data or {})},
            "training": {
                "output_dir": str(tmp_path / "run"), "use_cpu": True, "learning_rate": 1e-3,
                "max_steps": 2, "logging_steps": 1, "save_strategy": "no", **training,
            },
        }  # fmt: skip

    return make


@pytest.fixture(scope="session")
def trainer_of() -> Callable[[dict], object]:
    """Return a function from a run's values to its Trainer, as ``voicehub train`` builds it."""

    def make(values: dict):
        from voicehub.models.initial import read_initial_weights
        from voicehub.plugins.loading import resolve_reference
        from voicehub.specs.registry import get_training_spec
        from voicehub.trainer.trainer import Trainer

        spec = get_training_spec(values["model_type"])
        config = resolve_reference(spec.config_class).model_validate(values)
        experiment = resolve_reference(spec.experiment_factory)(config)
        if config.init_from is not None:
            weights = read_initial_weights(config.init_from, model_type=spec.model_type)
            experiment.model.start_from(weights)
        trainer = Trainer(
            model=experiment.model,
            args=config.training,
            data_collator=experiment.data_collator,
            train_dataset=experiment.train_dataset,
            eval_dataset=experiment.eval_datasets or None,
            callbacks=experiment.callbacks,
            training_adapter=experiment.adapter,
            train_plan=experiment.train_plan,
            eval_plans=experiment.eval_plans,
        )
        trainer.experiment = experiment
        return trainer

    return make
