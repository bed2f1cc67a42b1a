"""Write the portable artifact of an adapter: model, recipe manifest, recipe state, exports."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voicehub.checkpoints.state_file import read_state, write_state
from voicehub.models.artifact import RECIPE_FILE, write_artifact_config
from voicehub.models.lifecycle import PreTrainedSpeechModel

if TYPE_CHECKING:
    from voicehub.adapters.base import TrainingAdapter

NATIVE_EXPORT = "native_export"
RECIPE_STATE_FILE = "recipe_state.safetensors"
MODEL_FILE = "model.safetensors"


def save_artifact(adapter: TrainingAdapter, directory: Path, *, native_export: bool) -> None:
    """Write ``directory``; a wrapper writes itself, a plain module as safetensors."""
    directory.mkdir(parents=True, exist_ok=True)
    if isinstance(adapter.model, PreTrainedSpeechModel):
        adapter.model.save_pretrained(directory)
    else:
        _save_module(adapter, directory)
    manifest = adapter.artifact_manifest()
    exported = native_export and _export_native(adapter.model, directory / NATIVE_EXPORT)
    manifest["native_export_path"] = NATIVE_EXPORT if exported else None
    if not exported:
        manifest["native_export"] = None
    _save_recipe_state(adapter, directory)
    text = json.dumps(manifest, indent=2, allow_nan=False)
    (directory / RECIPE_FILE).write_text(text + "\n", encoding="utf-8")


def load_recipe_state(directory: Path) -> dict[str, Any]:
    """Return the recipe state of an artifact; empty where the recipe keeps none."""
    path = directory / RECIPE_STATE_FILE
    if not path.exists():
        return {}
    state: dict[str, Any] = read_state(path)
    return state


def restore_recipe_state(adapter: TrainingAdapter) -> None:
    """Hand the adapter the recipe state of the artifact its model comes from, if it is its own.

    An artifact of another recipe is a warm start: its weights are used, its recipe state is left
    out with a warning.
    """
    if not isinstance(adapter.model, PreTrainedSpeechModel):
        return
    directory = Path(adapter.model.name_or_path)
    if not (directory / RECIPE_STATE_FILE).is_file():
        return
    manifest = json.loads((directory / RECIPE_FILE).read_text(encoding="utf-8"))
    if {key: manifest.get(key) for key in adapter.identity} == adapter.identity:
        adapter.load_recipe_state_dict(load_recipe_state(directory))
        return
    warnings.warn(
        f"The recipe state in {directory} was left out: it belongs to {manifest.get('class')} "
        f"version {manifest.get('recipe_version')}, this recipe is {adapter.identity['class']} "
        f"version {adapter.identity['recipe_version']}. Only the weights are used.",
        RuntimeWarning,
        stacklevel=3,
    )


def _save_module(adapter: TrainingAdapter, directory: Path) -> None:
    from safetensors.torch import save_file

    module = adapter.module
    write_artifact_config(
        directory,
        model_type=adapter.spec.model_type,
        family=adapter.spec.family,
        model={"class": f"{type(module).__module__}.{type(module).__qualname__}"},
    )
    portable = adapter.portable_state
    tensors = adapter.state_dict() if portable is None else dict(portable())
    save_file(tensors, directory / MODEL_FILE, metadata={"format": "pt"})


def _save_recipe_state(adapter: TrainingAdapter, directory: Path) -> None:
    state = adapter.recipe_state_dict()
    if state:
        write_state(directory / RECIPE_STATE_FILE, state, "recipe")


def _export_native(model: Any, target: Path) -> bool:
    """Write the layout of the library the model comes from; False where it has none."""
    target.mkdir(parents=True, exist_ok=True)
    if isinstance(model, PreTrainedSpeechModel):
        done = model.export_native(target)
    elif hasattr(model, "save_pretrained"):
        model.save_pretrained(target)
        done = True
    else:
        done = False
    if not done:
        shutil.rmtree(target)
    return done
