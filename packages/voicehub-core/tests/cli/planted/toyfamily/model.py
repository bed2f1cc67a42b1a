from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from voicehub.errors import DataError
from voicehub.models.lifecycle import PreTrainedRecognitionModel
from voicehub.models.results import EvaluationReport, PredictionRow, Transcription, WordTiming


class Line(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.line = nn.Linear(width, 1)

    def forward(self, inputs: Tensor, labels: Tensor | None = None) -> dict[str, Any]:
        logits = self.line(inputs).squeeze(-1)
        if labels is None:
            return {"logits": logits}
        return {
            "loss": (logits - labels).square().mean(),
            "logits": logits,
            "num_items": len(logits),
        }


class ToyModel(PreTrainedRecognitionModel):
    default_model_type = "toy-line"

    def _load_weights(self) -> None:
        directory = Path(self.name_or_path)
        if directory.is_dir():
            config = json.loads((directory / "config.json").read_text())["model"]
            self.model = Line(config["width"])
            self.model.load_state_dict(load_file(directory / "model.safetensors"))
        else:
            self.model = Line(self.options["width"])

    def artifact_config(self) -> dict[str, Any]:
        return {"width": self.model.line.in_features}

    def _save_family_files(self, directory: Path) -> None:
        save_file(self.model.state_dict(), directory / "model.safetensors")

    def transcribe(
        self, audio, *, batch_size=8, beam_size=1, timestamps=False, **options
    ) -> list[Transcription]:
        found = []
        for item in audio:
            text = Path(item).read_text()
            if not text:
                raise DataError(f"{item} is empty (0 bytes).")
            words = [WordTiming(w, i / 2, i / 2 + 0.4) for i, w in enumerate(text.split())]
            found.append(Transcription(str(item), text, words if timestamps else None, 1.0))
        return found

    def evaluate(self, manifest, *, batch_size=8, max_samples=None, **options) -> EvaluationReport:
        rows = [json.loads(line) for line in Path(manifest).read_text().splitlines()]
        rows = rows[:max_samples]
        predictions = [
            PredictionRow(
                r["id"], r["text"], r["text"].replace("two", "too"), int("two" in r["text"]), 2
            )
            for r in rows
        ]
        errors = sum(p.errors for p in predictions)
        metrics = {"wer": errors / (2 * len(rows))}
        tables = {}
        if options.get("allow_seen"):
            tables["by source"] = [{"source": "seen", "wer": 0.25, "rows": 3}, {"source": "new"}]
        dropped, notes = {"empty text": 1}, ["left out: r9"]
        return EvaluationReport(metrics, predictions, dropped, tables=tables, notes=notes)
