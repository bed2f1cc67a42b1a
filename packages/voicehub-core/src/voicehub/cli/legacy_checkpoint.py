"""Weights out of checkpoints of the formats 1 to 3, which held them as ``model_state.pt``.

They become a complete checkpoint of today's format without optimizer or data position: it loads as
weights, and an exact resume from it is refused by its manifest. Pickled code is never run.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from voicehub.checkpoints.layout import FORMAT_VERSION, MANIFEST_FILE, MODEL_FILE, checkpoint_step
from voicehub.errors import CheckpointCorruptError, CheckpointMismatchError

LEGACY_MODEL_FILE = "model_state.pt"
_ADAPTER = "__voicehub_training_adapter__"
_COMPONENTS, _RECIPE = "components", "recipe_state"


@dataclass(frozen=True)
class Conversion:
    """What was read and written; ``left_out`` names parts that are no model weights."""

    path: Path
    source_format: int
    step: int
    tensors: int
    left_out: list[str]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def convert_checkpoint(source: Path, output: Path) -> Conversion:
    """Write the weights of ``source`` as ``output/checkpoint-<step>``.

    Raises:
        CheckpointMismatchError: the source is not of an older format.
        CheckpointCorruptError: a file is damaged, missing, or holds more than tensors.
    """
    from voicehub.checkpoints.writer import CheckpointPayload, write_checkpoint

    manifest = _read_json(source / MANIFEST_FILE)
    version = int(manifest.get("format_version", 1))
    if version >= FORMAT_VERSION or (source / MODEL_FILE).exists():
        raise CheckpointMismatchError(
            f"{source} has format {max(version, FORMAT_VERSION)}, which is read as it is: there "
            "is nothing to convert."
        )
    _check_digests(source, manifest)
    state = _load(source / LEGACY_MODEL_FILE)
    tensors = dict(_tensors(state))
    if not tensors:
        raise CheckpointCorruptError(f"{source / LEGACY_MODEL_FILE} holds no tensors.")
    left_out = [_RECIPE] if state.get(_ADAPTER) and state.get(_RECIPE) else []
    step = manifest.get("global_step", checkpoint_step(source))
    if not isinstance(step, int):
        step = int(_read_json(source / "trainer_state.json").get("global_step", 0))
    fields = {
        "run_id": f"converted-{source.name}",
        "model_type": manifest.get("model_type"),
        "converted_from": {"format_version": version, "adapter": manifest.get("adapter_class")},
        "resume_signature": {},
    }
    path = write_checkpoint(output, step, CheckpointPayload(tensors=tensors), fields)
    return Conversion(path, version, step, len(tensors), left_out)


def _tensors(state: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Flat names as today's adapters write them: one root has no prefix, several have a path."""
    import torch

    roots: Mapping[str, Any] = {"": state}
    if state.get(_ADAPTER):
        roots = state.get(_COMPONENTS) or {}
    for path, content in roots.items():
        prefix = f"{path.replace('.', '/')}." if len(roots) > 1 else ""
        for name, value in content.items():
            if isinstance(value, torch.Tensor):
                yield f"{prefix}{name}", value


def _load(path: Path) -> Mapping[str, Any]:
    import torch

    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise CheckpointCorruptError(f"{path} is missing.") from None
    except pickle.UnpicklingError as error:
        raise CheckpointCorruptError(
            f"{path} was refused: it holds something other than tensors and plain values, and "
            "loading that could run foreign code."
        ) from error
    except (RuntimeError, EOFError, ValueError, KeyError) as error:
        raise CheckpointCorruptError(f"{path} cannot be read: {error}") from error
    if not isinstance(state, Mapping):
        raise CheckpointCorruptError(f"{path} holds a {type(state).__name__}, not a state.")
    return state


def _check_digests(source: Path, manifest: Mapping[str, Any]) -> None:
    """Format 3 recorded sizes and digests; older ones did not."""
    from voicehub.checkpoints.manifest import verify_files

    if manifest.get("file_integrity"):
        verify_files(source, manifest, allow_others=True)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise CheckpointCorruptError(f"{path} is no JSON: {error}") from error
    return content if isinstance(content, dict) else {}
