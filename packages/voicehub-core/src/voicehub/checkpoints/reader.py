"""Reading a checkpoint: everything is verified first, nothing is ever unpickled."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from voicehub.checkpoints.codec import decode_state
from voicehub.checkpoints.layout import (
    FROZEN_FILE,
    MODEL_FILE,
    OPTIMIZER_FILE,
    RNG_FILE,
    RUNTIME_FILE,
    SCALER_FILE,
    SCHEDULER_FILE,
    latest_checkpoint,
)
from voicehub.checkpoints.manifest import read_manifest, verify_files
from voicehub.checkpoints.shards import (
    MODEL_STEM,
    OPTIMIZER_STEM,
    index_name,
    put_back,
    read_shards,
)
from voicehub.checkpoints.strict_json import parse_json
from voicehub.errors import CheckpointCorruptError, CheckpointError


class CheckpointNotFoundError(CheckpointError, FileNotFoundError):
    """There is no checkpoint where one was asked for."""


class Checkpoint:
    """A verified checkpoint; its parts are read when asked for.

    Attributes:
        path: the directory.
        manifest: its manifest.
    """

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path = path
        self.manifest = manifest

    @property
    def step(self) -> int:
        """Global step."""
        return int(self.manifest["global_step"])

    @property
    def run_id(self) -> str:
        """Id of the run that wrote it."""
        return str(self.manifest["run_id"])

    def has_file(self, name: str) -> bool:
        """Tell whether the manifest lists a file of this name."""
        return name in self.manifest["file_integrity"]

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the model tensors on the CPU, by name."""
        if self.has_file(index_name(MODEL_STEM)):
            return self._tensors_in_shards(MODEL_STEM)
        tensors = self._tensors_in(MODEL_FILE)
        if self.has_file(FROZEN_FILE):
            tensors.update(self._tensors_in(FROZEN_FILE))
        return tensors

    def _tensors_in(self, name: str) -> dict[str, torch.Tensor]:
        self._require(name)
        try:
            return load_file(self.path / name)
        except SafetensorError as error:
            raise CheckpointCorruptError(
                f"{self.path / name} is no safetensors file: {error}."
            ) from error

    def _tensors_in_shards(self, stem: str) -> dict[str, torch.Tensor]:
        return read_shards(self.path, stem, self.manifest["file_integrity"])

    def optimizer(self) -> dict[str, Any]:
        """Return the state of all optimizers."""
        state = self._state(OPTIMIZER_FILE)
        if not self.has_file(index_name(OPTIMIZER_STEM)):
            return state
        try:
            found: dict[str, Any] = put_back(state, self._tensors_in_shards(OPTIMIZER_STEM))
        except KeyError as error:
            raise CheckpointCorruptError(
                f"{self.path / OPTIMIZER_FILE} names a tensor that no shard holds: {error}."
            ) from error
        return found

    def scheduler(self) -> dict[str, Any]:
        """Return the state of all schedulers."""
        return self._state(SCHEDULER_FILE)

    def scaler(self) -> dict[str, Any] | None:
        """Return the state of the gradient scaler, or ``None`` where the run had none."""
        return self._state(SCALER_FILE) if self.has_file(SCALER_FILE) else None

    def rng(self) -> dict[str, Any]:
        """Return the random state for ``restore_random_state``."""
        host: dict[str, Any] = self._state(RUNTIME_FILE)["host_random_state"]
        return {**self._state(RNG_FILE), **host}

    def runtime(self) -> dict[str, Any]:
        """Return the state of callbacks, sampler and strategy."""
        state: dict[str, Any] = self._state(RUNTIME_FILE)["state"]
        return state

    def document(self, name: str) -> Any:
        """Return the JSON document ``name``."""
        self._require(name)
        try:
            return parse_json((self.path / name).read_bytes())
        except ValueError as error:
            raise CheckpointCorruptError(f"{self.path / name} is no JSON: {error}.") from error

    def _state(self, name: str) -> dict[str, Any]:
        self._require(name)
        path = self.path / name
        try:
            state: dict[str, Any] = decode_state(
                torch.load(path, map_location="cpu", weights_only=True)
            )
        except pickle.UnpicklingError as error:
            raise CheckpointCorruptError(
                f"{path} was refused: it holds something other than tensors and plain values, and "
                "loading that could run foreign code. Use a checkpoint from a source you trust."
            ) from error
        except (RuntimeError, EOFError, ValueError, KeyError) as error:
            raise CheckpointCorruptError(f"{path} cannot be read: {error}.") from error
        return state

    def _require(self, name: str) -> None:
        if not self.has_file(name):
            listed = ", ".join(self.manifest["required_files"])
            raise CheckpointNotFoundError(
                f"{self.path} holds no {name}; its manifest lists {listed}."
            )


def open_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Verify a checkpoint (manifest, every size, every digest) and return it.

    Raises:
        CheckpointNotFoundError: the directory does not exist.
        CheckpointCorruptError: it is incomplete or damaged; the file is named.
        CheckpointMismatchError: its format is another one, or the directory was renamed.
    """
    directory = Path(path)
    if not directory.is_dir():
        raise CheckpointNotFoundError(f"Checkpoint does not exist: {directory} is no directory.")
    manifest = read_manifest(directory)
    verify_files(directory, manifest)
    return Checkpoint(directory, manifest)


def find_checkpoint(run_dir: str | os.PathLike[str]) -> Path:
    """Return the newest complete checkpoint of a run directory by number, unverified.

    Raises:
        CheckpointNotFoundError: there is none.
    """
    found = latest_checkpoint(run_dir)
    if found is None:
        raise CheckpointNotFoundError(
            f"No checkpoint found in {Path(run_dir)}: no checkpoint-<step> directory there is "
            "complete. Start without resuming, or give the path of a checkpoint."
        )
    return found
