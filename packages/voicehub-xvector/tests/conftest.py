"""A corpus of synthetic voices, and tiny pretrained encoders; no network."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Read when transformers is first imported.
os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import pytest
import soundfile

from voicehub_xvector.conformance import voice

ENCODERS = ("wav2vec2", "hubert", "wavlm", "whisper", "wav2vec2-bert")


@pytest.fixture(scope="session")
def encoder_checkpoint(tmp_path_factory) -> Callable[..., Path]:
    """Return a function that writes a tiny checkpoint of a type once, and gives its directory."""
    from voicehub_hf.testing_encoders import make_tiny_encoder_checkpoint

    made: dict[object, Path] = {}

    def make(kind: str, **settings: Any) -> Path:
        key = (kind, json.dumps(settings, sort_keys=True))
        if key not in made:
            folder = tmp_path_factory.mktemp(kind)
            made[key] = make_tiny_encoder_checkpoint(folder, kind, **settings)
        return made[key]

    return make


@pytest.fixture(scope="session")
def voice_corpus(tmp_path_factory) -> Callable[..., Path]:
    """Return a function that writes a manifest of so many recordings and gives its path."""
    made: dict[object, Path] = {}

    def make(count: int, seed: int = 0, name: str = "voices", rate: int = 16000) -> Path:
        key = (count, seed, name, rate)
        if key not in made:
            folder = tmp_path_factory.mktemp(name)
            generator = np.random.default_rng(seed)
            lines = []
            for number in range(count):
                speaker, audio = voice(seed * 10_000 + number, int(generator.integers(4000, 9000)))
                soundfile.write(folder / f"{number:03d}.wav", audio, rate, subtype="FLOAT")
                row = {"id": f"{name}-{number}", "audio_filepath": f"{number:03d}.wav"}
                lines.append(json.dumps({**row, "speaker": speaker, "duration": len(audio) / rate}))
            made[key] = folder / "manifest.jsonl"
            made[key].write_text("".join(f"{line}\n" for line in lines))
        return made[key]

    return make


@pytest.fixture(scope="session")
def run_values() -> Callable[..., dict[str, Any]]:
    """Return a function that gives the values of a short run on log-mel features."""

    def values(train: Path, evaluation: Path | None, folder: Path, **training: Any) -> dict:
        settings = {
            "output_dir": str(folder / "run"), "num_train_epochs": 3, "learning_rate": 5e-3,
            "use_cpu": True, "logging_steps": 5, "save_strategy": "no", "max_grad_norm": 5.0,
            **training,
        }  # fmt: skip
        head = {
            "kind": "resnet1d", "in_channels": 16, "channels": [16], "repeats": [1],
            "kernels": [3], "strides": [1], "dilations": [1], "embedding_size": 12,
        }  # fmt: skip
        return {
            "family": "xvector",
            "model_type": "xvector-logmel",
            "model": {
                "features": {"kind": "log-mel", "n_mels": 20},
                "head": head,
                "loss": {"kind": "aam", "scale": 12, "margin": 0.1},
            },
            "data": {
                "train": str(train),
                "eval": {} if evaluation is None else {"held": str(evaluation)},
                "sampler": {"kind": "bucketed", "max_padded_seconds": 6, "max_batch_size": 16},
            },
            "training": settings,
        }

    return values


@pytest.fixture(scope="session")
def trainer_of() -> Callable[..., Any]:
    """Return a function that builds experiment and Trainer of a configuration."""
    from voicehub.trainer.trainer import Trainer
    from voicehub_xvector.config import EncoderRunConfig, LogMelRunConfig
    from voicehub_xvector.experiment import build_experiment

    def build(values: dict[str, Any], **more: Any) -> Trainer:
        kind = LogMelRunConfig if values["model_type"] == "xvector-logmel" else EncoderRunConfig
        config = kind.model_validate(values)
        experiment = build_experiment(config)
        return Trainer(
            model=experiment.model,
            args=config.training,
            data_collator=experiment.data_collator,
            train_dataset=experiment.train_dataset,
            eval_dataset=experiment.eval_datasets or None,
            callbacks=[*experiment.callbacks, *more.pop("callbacks", [])],
            train_plan=experiment.train_plan,
            eval_plans=experiment.eval_plans,
            evaluation_tasks=experiment.evaluation_tasks,
            **more,
        )

    return build
