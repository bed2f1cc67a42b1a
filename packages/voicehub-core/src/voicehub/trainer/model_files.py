"""Configuration files of a model that every checkpoint carries beside the weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from voicehub.adapters.base import TrainingAdapter
from voicehub.models.artifact import CONFIG_FILE, write_artifact_config
from voicehub.models.lifecycle import PreTrainedSpeechModel

FileWriter = Callable[[Path], None]


def model_files(adapter: TrainingAdapter, processing_class: Any) -> dict[str, FileWriter]:
    """Writers by file name: ``config.json``, ``generation_config.json``, ``processor_config.json``.

    A wrapper's configuration is ours, that of a transformers module its own. What there is none
    of is left out. The writers run while the checkpoint is written, on another thread.
    """
    model, files = adapter.model, dict[str, FileWriter]()
    if isinstance(model, PreTrainedSpeechModel):
        files[CONFIG_FILE] = partial(_write_wrapper_config, model)
    sources = {
        CONFIG_FILE: getattr(adapter.module, "config", None),
        "generation_config.json": getattr(adapter.module, "generation_config", None),
        "processor_config.json": processing_class,
    }
    for name, source in sources.items():
        if name not in files and callable(getattr(source, "to_json_string", None)):
            files[name] = partial(_write_json_of, source)
    return files


def _write_wrapper_config(model: PreTrainedSpeechModel, path: Path) -> None:
    write_artifact_config(
        path.parent,
        model_type=model.model_type,
        family=model.training_spec.family,
        model=model.artifact_config(),
    )


def _write_json_of(source: Any, path: Path) -> None:
    document = json.loads(source.to_json_string())
    path.write_text(json.dumps(document, indent=2, sort_keys=True) + "\n", encoding="utf-8")
