"""What a checkpoint is made of, and the copy of it that training cannot change any more."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import torch

from voicehub.checkpoints.codec import encode_state
from voicehub.checkpoints.layout import (
    OPTIMIZER_FILE,
    RESERVED_FILES,
    RNG_FILE,
    RUNTIME_FILE,
    SCALER_FILE,
    SCHEDULER_FILE,
)
from voicehub.checkpoints.random_state import DEVICE_KEYS
from voicehub.checkpoints.strict_json import dump_json
from voicehub.errors import CheckpointError

FileWriter = Callable[[Path], None]


@dataclass(frozen=True)
class CheckpointPayload:
    """The live state of a training run, as handed to ``snapshot`` or ``write_checkpoint``.

    Attributes:
        tensors: model tensors by name.
        optimizer: state of all optimizers.
        scheduler: state of all schedulers.
        scaler: state of the gradient scaler, ``None`` without one.
        rng_state: what ``capture_random_state`` returned.
        runtime: callbacks, sampler, strategy and whatever else a resume needs.
        documents: JSON documents by file name, such as ``"trainer_state.json"``.
        extra_files: functions that write a file or a directory at the path they are given, by
            its name; called while the checkpoint is committed.
        allow_non_finite: names of tensors that hold infinities by design, such as mask buffers.
        frozen: names of tensors that the run does not train; they get a file of their own.
    """

    tensors: Mapping[str, torch.Tensor]
    optimizer: dict[str, Any] = field(default_factory=dict)
    scheduler: dict[str, Any] = field(default_factory=dict)
    scaler: dict[str, Any] | None = None
    rng_state: dict[str, Any] = field(default_factory=dict)
    runtime: dict[str, Any] = field(default_factory=dict)
    documents: Mapping[str, Any] = field(default_factory=dict)
    extra_files: Mapping[str, FileWriter] = field(default_factory=dict)
    allow_non_finite: Collection[str] = ()
    frozen: Collection[str] = ()


@dataclass(frozen=True)
class Snapshot:
    """A payload ready to be written: tensors on the CPU, states encoded, documents as JSON."""

    tensors: dict[str, torch.Tensor]
    states: dict[str, Any]
    documents: dict[str, bytes]
    extra_files: dict[str, FileWriter]
    nbytes: int
    frozen: frozenset[str] = frozenset()


class SnapshotBuffers:
    """Memory that snapshots copy into, kept from one to the next.

    Fresh memory costs more than the copy itself, since every page of it is first cleared by the
    system. A new snapshot overwrites the one before: it must have been written by then.
    """

    def __init__(self) -> None:
        self._kept: list[torch.Tensor] = []
        self._used = 0

    def rewind(self) -> None:
        """Start over: what was handed out before may be overwritten from now on."""
        self._used = 0

    def copy_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a CPU copy, in the memory that the tensor of this position had before."""
        position = self._used
        self._used += 1
        if position < len(self._kept):
            kept = self._kept[position]
            if kept.shape == tensor.shape and kept.dtype == tensor.dtype:
                return kept.copy_(tensor)
            self._kept[position] = _cpu_copy(tensor)
        else:
            self._kept.append(_cpu_copy(tensor))
        return self._kept[position]


def _cpu_copy(tensor: torch.Tensor) -> torch.Tensor:
    fresh = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
    return fresh.copy_(tensor)


def snapshot(
    payload: CheckpointPayload, *, copy: bool = True, buffers: SnapshotBuffers | None = None
) -> Snapshot:
    """Check a payload and detach it from the training.

    Args:
        payload: the live state.
        copy: copy tensors, so that training may go on while the snapshot is written. Without it
            CPU tensors are shared with the training, which must wait.
        buffers: memory for the copies; only with ``copy``.

    Raises:
        CheckpointError: a model tensor is not finite, a state or document cannot be stored, or a
            file name is reserved, unsafe or used twice.
    """
    _check_names(payload)
    _check_finite(payload)
    if buffers is not None:
        buffers.rewind()
    copied = _Copier(copy, buffers)
    states = {
        OPTIMIZER_FILE: encode_state(payload.optimizer, "optimizer state", copied),
        SCHEDULER_FILE: encode_state(payload.scheduler, "scheduler state", copied),
    }
    if payload.scaler is not None:
        states[SCALER_FILE] = encode_state(payload.scaler, "scaler state", copied)
    devices = {k: v for k, v in payload.rng_state.items() if k in DEVICE_KEYS}
    host = {k: v for k, v in payload.rng_state.items() if k not in DEVICE_KEYS}
    states[RNG_FILE] = encode_state(devices, "random state", copied)
    runtime = {"state": payload.runtime, "host_random_state": host}
    states[RUNTIME_FILE] = encode_state(runtime, "runtime state", copied)
    documents = {name: dump_json(value, name) for name, value in payload.documents.items()}
    tensors = _model_tensors(payload.tensors, copied)
    nbytes = copied.nbytes + sum(map(len, documents.values()))
    frozen = frozenset(payload.frozen) & tensors.keys()
    return Snapshot(tensors, states, documents, dict(payload.extra_files), nbytes, frozen)


class _Copier:
    """Brings tensors to the CPU and counts their bytes."""

    def __init__(self, copy: bool, buffers: SnapshotBuffers | None) -> None:
        self.copy = copy
        self.buffers = buffers
        self.nbytes = 0

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        self.nbytes += tensor.nbytes
        if self.buffers is not None and tensor.layout == torch.strided and not tensor.is_quantized:
            return self.buffers.copy_of(tensor)
        if tensor.device.type != "cpu":
            return tensor.to("cpu")
        # torch.save stores the whole storage of a view, so a view is always copied.
        if self.copy or tensor.nbytes != tensor.untyped_storage().nbytes():
            return tensor.clone()
        return tensor


def _model_tensors(tensors: Mapping[str, torch.Tensor], copied: _Copier) -> dict[str, torch.Tensor]:
    """Return dense, contiguous tensors on the CPU, none sharing memory with another."""
    seen: set[int] = set()
    result = {}
    for name, tensor in tensors.items():
        if tensor.layout != torch.strided or tensor.device.type == "meta":
            raise CheckpointError(
                f"model tensor {name!r} is sparse or holds no data ({tensor.layout}, "
                f"{tensor.device}); only dense tensors with data can be saved."
            )
        plain = copied(tensor.detach()).contiguous()
        storage = plain.untyped_storage().data_ptr()
        if storage and storage in seen:
            plain = plain.clone()
        seen.add(storage)
        result[name] = plain
    return result


def _check_finite(payload: CheckpointPayload) -> None:
    allowed = frozenset(payload.allow_non_finite)
    bad = [
        name
        for name, tensor in payload.tensors.items()
        if name not in allowed and not _is_finite(tensor.detach())
    ]
    if bad:
        shown = ", ".join(map(repr, bad[:8])) + (f" and {len(bad) - 8} more" if bad[8:] else "")
        raise CheckpointError(
            f"the model holds NaN or infinite values in {len(bad)} tensor(s): {shown}. No "
            "checkpoint was written; the last complete one is the place to resume from."
        )


def _is_finite(tensor: torch.Tensor) -> bool:
    if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.is_meta:
        return True
    if tensor.is_complex():
        return bool(torch.isfinite(tensor).all())
    # NaN and infinities survive summation, which reads once and allocates nothing; a sum that
    # overflows without them is settled by the full check.
    wide = tensor.dtype if tensor.dtype == torch.float64 else torch.float32
    if tensor.element_size() > 1 and bool(torch.isfinite(tensor.sum(dtype=wide))):
        return True
    return bool(torch.isfinite(tensor.to(wide)).all())


def _check_names(payload: CheckpointPayload) -> None:
    names = [*payload.documents, *payload.extra_files]
    for name in names:
        path = PurePosixPath(name)
        outside = path.is_absolute() or ".." in path.parts or not path.parts
        if outside or (os.sep != "/" and os.sep in name) or str(path) != name:
            raise CheckpointError(
                f"file name {name!r} does not lie inside the checkpoint; give a relative name."
            )
        if path.parts[0] in RESERVED_FILES:
            raise CheckpointError(f"file name {name!r} is one that the checkpoint itself uses.")
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise CheckpointError(f"{sorted(twice)[0]!r} is both a document and an extra file.")
