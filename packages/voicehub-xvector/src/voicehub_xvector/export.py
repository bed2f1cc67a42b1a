"""Exports that run without VoiceHub: speechbrain directories, and ``torch.export`` programs."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from voicehub_hf.lora import merge_lora
from voicehub_xvector.head_config import EcapaConfig

if TYPE_CHECKING:
    from voicehub_xvector.embedder import XVectorModel

PROGRAM_FILE, DESCRIPTION_FILE = "embedder.pt2", "embedder.json"


def export(model: XVectorModel, directory: Path) -> None:
    """Write what fits the model's head.

    An ECAPA becomes a directory that speechbrain loads. Every other head becomes a program from
    the front end's output to embeddings, with a description of its inputs.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if isinstance(model.config.head, EcapaConfig):
        from voicehub_xvector.speechbrain_export import export_speechbrain

        export_speechbrain(model, directory)
        return
    export_program(model, directory)


def export_program(model: XVectorModel, directory: Path) -> None:
    """Write ``embedder.pt2``, a program ``(rows, lengths) -> embeddings``, and its description."""
    network = copy.deepcopy(model.network).cpu().eval()
    encoder = getattr(network, "encoder", None)
    if encoder is not None and hasattr(encoder, "merge_and_unload"):
        network.encoder = merge_lora(encoder)
    alone = _OneLength(network, model.front_end.input_name)
    example = model.front_end.batch(
        [model.front_end.prepare(_noise(n, model.sample_rate)) for n in (0.9, 1.3, 1.3)]
    )
    rows, lengths = example[model.front_end.input_name], example["lengths"]
    fixed = getattr(model.front_end, "maximum_samples", None) is not None
    padded = not network.runs_apart
    if not padded:
        lengths = torch.full_like(lengths, rows.shape[1])
    batch = torch.export.Dim("batch", min=1)
    shape: dict[int, Any] = {0: batch} if fixed else {0: batch, 1: torch.export.Dim.AUTO}
    with torch.no_grad():
        program = torch.export.export(
            alone, (rows, lengths), dynamic_shapes=(shape, {0: batch}), strict=False
        )
    torch.export.save(program, directory / PROGRAM_FILE)
    description = {
        "model_type": model.model_type,
        "sample_rate": model.sample_rate,
        "embedding_size": model.embedding_size,
        "front_end": model.front_end.fingerprint(),
        "inputs": {
            "rows": {
                "name": model.front_end.input_name,
                "shape": [
                    "batch",
                    *("rows" if i == 0 and not fixed else n for i, n in enumerate(rows.shape[1:])),
                ],
                "padding_value": model.front_end.padding_value,
            },
            "lengths": "valid rows, int64 (batch,)",
        },
        "utterances_of_unequal_length": "padded" if padded else "apart",
        "classes": model.classes,
    }
    text = json.dumps(description, indent=2, ensure_ascii=False)
    (directory / DESCRIPTION_FILE).write_text(text + "\n", encoding="utf-8")


class _OneLength(nn.Module):
    """The network as the program has it: without the loss, and without taking batches apart."""

    def __init__(self, network: Any, input_name: str) -> None:
        super().__init__()
        self.network = network
        self.network.loss = nn.Identity()
        self.network.runs_apart = False
        self.input_name = input_name
        # WavLM's attention guards against batches of one where it repeats its position bias.
        self.adds_one = getattr(network, "entry", None) is not None and (
            network.entry.model_type == "wavlm"
        )

    def forward(self, rows: Tensor, lengths: Tensor) -> Tensor:
        if not self.adds_one:
            return self._embed(rows, lengths)
        rows, lengths = torch.cat([rows, rows[:1]]), torch.cat([lengths, lengths[:1]])
        return self._embed(rows, lengths)[:-1]

    def _embed(self, rows: Tensor, lengths: Tensor) -> Tensor:
        embedded: Tensor = self.network(**{self.input_name: rows, "lengths": lengths})
        return embedded


def _noise(seconds: float, rate: int) -> Any:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(round(seconds * rate), generator=generator).mul(0.1).numpy()
