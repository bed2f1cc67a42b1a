"""The weights that a run starts from: an earlier portable artifact, named and hashed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from voicehub.checkpoints.hashed_files import files_below
from voicehub.checkpoints.manifest import hash_file
from voicehub.errors import CheckpointMismatchError, ConfigurationError
from voicehub.models.artifact import Artifact, artifact_directory, read_artifact

#: Written from the same weights for other libraries; not read when a run starts from an artifact.
_NATIVE_EXPORT = "native_export"
_SHOWN = 5


@dataclass(frozen=True)
class InitialWeights:
    """A portable artifact whose weights, and nothing else of its run, are a start.

    Attributes:
        artifact: What its ``config.json`` says, and where it lies.
        files: SHA-256 of each of its files by relative path, the native export left out.
    """

    artifact: Artifact
    files: Mapping[str, str]

    @property
    def directory(self) -> Path:
        """Where the artifact lies."""
        return self.artifact.directory

    @property
    def sha256(self) -> str:
        """One digest over the names and digests of all files."""
        text = "".join(f"{name}\0{digest}\n" for name, digest in sorted(self.files.items()))
        return hashlib.sha256(text.encode()).hexdigest()

    def as_record(self) -> dict[str, Any]:
        """For a run's record."""
        return {"path": str(self.directory), "sha256": self.sha256, "files": dict(self.files)}


def read_initial_weights(path: str | Path, *, model_type: str) -> InitialWeights:
    """Read and hash an artifact that a run of ``model_type`` may start from.

    Args:
        path: An artifact, or a run directory, which stands for its final model.
        model_type: Of the run.

    Raises:
        ConfigurationError: there is no artifact, or it is of another model type.
    """
    directory = artifact_directory(path)
    if not directory.is_dir():
        raise ConfigurationError(
            f"init_from: {path} is no directory. Expected a model saved by VoiceHub, or the run "
            "directory that holds one."
        )
    artifact = read_artifact(directory)
    if artifact.model_type != model_type:
        raise ConfigurationError(
            f"init_from: {directory} holds a '{artifact.model_type}', but this run trains a "
            f"'{model_type}'. Weights start a run of their own model type alone."
        )
    names = {path.relative_to(directory).as_posix(): path for path in files_below(directory)}
    files = {
        name: hash_file(file).sha256
        for name, file in names.items()
        if not name.startswith(f"{_NATIVE_EXPORT}/")
    }
    return InitialWeights(artifact, files)


def copy_weights(target: Any, source: Any, directory: Path) -> None:
    """Copy all tensors of one module into another of the same names and shapes.

    Args:
        target, source: ``torch.nn.Module``.
        directory: Of the artifact, for the message.

    Raises:
        CheckpointMismatchError: names or shapes differ; nothing was changed.
    """
    own, given = target.state_dict(), source.state_dict()
    shapes = [{name: tuple(tensor.shape) for name, tensor in s.items()} for s in (own, given)]
    differing = sorted(
        name for name in own.keys() | given.keys() if shapes[0].get(name) != shapes[1].get(name)
    )
    if differing:
        lines = [
            f"  - {name}: this model {_shape(shapes[0], name)}, the artifact "
            f"{_shape(shapes[1], name)}"
            for name in differing[:_SHOWN]
        ]
        more = f"\n  ... and {len(differing) - _SHOWN} more" if len(differing) > _SHOWN else ""
        text = "\n".join(lines) + more
        raise CheckpointMismatchError(
            f"init_from: the weights of {directory} do not fit this model; {len(differing)} "
            f"tensors differ:\n{text}\nGive both the same model section."
        )
    target.load_state_dict(given)


def _shape(shapes: Mapping[str, tuple[int, ...]], name: str) -> str:
    return str(shapes[name]) if name in shapes else "has none"
