"""A loadable artifact with other weights: a finished run's model, averages in their place."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voicehub.adapters.auto import AutoTrainingAdapter
from voicehub.adapters.portable import MODEL_FILE, NATIVE_EXPORT
from voicehub.errors import CheckpointMismatchError, ConfigurationError
from voicehub.models.artifact import RECIPE_FILE, read_artifact
from voicehub.plugins import loading
from voicehub.plugins.groups import MODELS
from voicehub.specs.registry import known_model_types
from voicehub.trainer.saving import complete_recipe_manifest, replace_directory, write_json

if TYPE_CHECKING:
    from torch import Tensor

    from voicehub.adapters.base import TrainingAdapter


def averages_in(artifact: Path) -> dict[str, Any]:
    """What an artifact's manifest says of its run's averages; empty where it says nothing."""
    try:
        manifest = json.loads((artifact / RECIPE_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    found = manifest.get("ema") if isinstance(manifest, dict) else None
    return found if isinstance(found, dict) else {}


def write_averaged_artifact(
    base: Path, target: Path, averages: Mapping[str, Tensor], described: Mapping[str, Any]
) -> Path:
    """Write the artifact ``base`` again, with averaged weights.

    What is not averaged (buffers, frozen weights, tokenizers) is that of ``base``.

    Args:
        base: ``final-model`` of the run.
        target: a directory that does not exist, or an older such artifact.
        averages: tensors by the names that they have in training.
        described: what the manifest says of the averages.

    Raises:
        ConfigurationError: ``base`` is no artifact of the same run.
        CheckpointMismatchError: the averages do not fit the model.
    """
    artifact = read_artifact(base)
    own = averages_in(base).get("run_id")
    if own != described["run_id"]:
        raise CheckpointMismatchError(
            f"{base} is of the run {own}, but the averages are of {described['run_id']}."
        )
    manifest = {"weights": "ema", "ema": dict(described)}

    def write(directory: Path) -> None:
        shutil.copytree(base, directory, dirs_exist_ok=True)
        if artifact.model_type in known_model_types():
            adapter = _adapter_of(base, artifact.model_type)
            _put(adapter, averages, base)
            exports = (directory / NATIVE_EXPORT).is_dir()
            shutil.rmtree(directory / NATIVE_EXPORT, ignore_errors=True)
            adapter.save_pretrained(directory, native_export=exports)
            complete_recipe_manifest(directory, adapter, manifest)
            return
        _replace_tensors(directory, averages, base)
        path = directory / RECIPE_FILE
        written = json.loads(path.read_text(encoding="utf-8"))
        write_json(path, {**written, **manifest})

    return replace_directory(target, write)


def _adapter_of(base: Path, model_type: str) -> TrainingAdapter:
    kind: Any = loading.load(MODELS, model_type)
    adapter = AutoTrainingAdapter.from_model(kind.from_pretrained(base, model_type=model_type))
    adapter.setup()
    return adapter


def _put(adapter: TrainingAdapter, averages: Mapping[str, Tensor], base: Path) -> None:
    state = adapter.state_dict()
    _check_names(averages, state, base)
    fitting = {name: tensor.to(state[name].dtype) for name, tensor in averages.items()}
    adapter.load_state_dict({**state, **fitting})


def _replace_tensors(directory: Path, averages: Mapping[str, Tensor], base: Path) -> None:
    """The artifact of a plain module: its tensors are those of training."""
    from safetensors.torch import load_file, save_file

    path = directory / MODEL_FILE
    if not path.is_file():
        raise ConfigurationError(
            f"{base} is of a model type that no installed package knows, and holds no {MODEL_FILE}."
        )
    state = load_file(path)
    _check_names(averages, state, base)
    fitting = {name: tensor.to(state[name].dtype) for name, tensor in averages.items()}
    save_file({**state, **fitting}, path, metadata={"format": "pt"})


def _check_names(averages: Mapping[str, Tensor], state: Mapping[str, Tensor], base: Path) -> None:
    wrong = sorted(
        name
        for name, tensor in averages.items()
        if name not in state or state[name].shape != tensor.shape
    )
    if wrong:
        raise CheckpointMismatchError(
            f"The averages do not fit the model in {base}: {', '.join(wrong[:5])}"
            f"{' and more' if len(wrong) > 5 else ''} are not part of it, or of another shape. "
            "Nothing was written."
        )
