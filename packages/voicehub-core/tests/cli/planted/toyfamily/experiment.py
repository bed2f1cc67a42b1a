from __future__ import annotations

import io
import json
import time
import wave
from pathlib import Path
from typing import Any

import torch

from toyfamily.config import ToyRunConfig
from toyfamily.model import ToyModel
from voicehub.adapters.experiment import Experiment, SplitReport
from voicehub.errors import DataError
from voicehub.models.results import PredictionRow


class Numbers:
    deterministic = True

    def __init__(self, path: str, width: int, scale: float) -> None:
        if not Path(path).is_file():
            raise DataError(f"Manifest {path} does not exist. Give data.train=PATH.")
        self.rows = [json.loads(line) for line in Path(path).read_text().splitlines()]
        self.width, self.scale = width, scale

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        row = self.rows[index]
        x = torch.tensor(row["x"][: self.width], dtype=torch.float32)
        return {"id": row["id"], "inputs": x, "labels": self.scale * x.sum()}


def collate(items: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "inputs": torch.stack([item["inputs"] for item in items]),
        "labels": torch.stack([item["labels"] for item in items]),
        "batch_info": {
            "ids": [item["id"] for item in items],
            "audio_seconds": 2.0 * len(items),
            "padded_seconds": 2.5 * len(items),
        },
    }


def build_experiment(config: ToyRunConfig) -> Experiment:
    width, scale = config.model.width, config.data.scale
    train = Numbers(config.data.train, width, scale)
    evals = {name: Numbers(path, width, scale) for name, path in config.data.eval.items()}
    model = ToyModel("fresh", width=width)
    report = SplitReport(
        "train", len(train) + 2, len(train), {"too long": 2}, 2.0 * len(train), ["8 kHz"]
    )

    def predict(count: int) -> list[PredictionRow]:
        return [
            PredictionRow("u1", "one two <three>", "one too <three> & four", 2, 3, "/x/u1.wav"),
            PredictionRow("u2", "yes", "yes", 0, 1, "/x/u2.wav"),
        ][:count]

    experiment = Experiment(
        model=model,
        train_dataset=train,
        eval_datasets=evals,
        data_collator=collate,
        data_report=[report],
        record={"manifests": {"train": "0123abcd"}},
        predict=predict,
        next_command=lambda directory: f"voicehub transcribe FILE --model {directory}",
    )
    experiment.audio_bytes = lambda row: _tone() if row.id == "u1" else None
    return experiment


def _tone() -> bytes:
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(bytes(1600))
    return buffer.getvalue()


def build_slow_experiment(config: ToyRunConfig) -> Experiment:
    """Never ends on its own; announces on standard error that it trains."""
    experiment = build_experiment(config)
    dataset = experiment.train_dataset

    class Slow(Numbers):
        def __init__(self) -> None:
            self.__dict__.update(dataset.__dict__)

        def __getitem__(self, index: int) -> dict[str, Any]:
            time.sleep(0.005)
            return super().__getitem__(index)

    experiment.train_dataset = Slow()
    return experiment
