"""Running out of device memory in a step: what the batch was, and smaller micro-batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from voicehub.errors import VoiceHubError
from voicehub.trainer.micro_batch import MicroBatch


class StepOutOfMemoryError(VoiceHubError, torch.OutOfMemoryError):
    """The device has too little memory for a micro-batch."""


class IndivisibleBatchError(VoiceHubError):
    """A micro-batch cannot be halved."""


def describe_exhaustion(batch: MicroBatch, phase: str, error: BaseException) -> str:
    """Return a message with phase, sample ids and shapes of the batch that did not fit."""
    ids = [str(name) for name in batch.info.get("ids", ())]
    shown = ", ".join(ids[:16]) + (f" and {len(ids) - 16} more" if len(ids) > 16 else "")
    shapes = ", ".join(f"{name} {shape}" for name, shape in _shapes(batch.inputs, ""))
    first_line = (str(error).splitlines() or [""])[0]
    return (
        f"Out of memory in phase '{phase}' on a micro-batch of {batch.size} samples "
        f"({shown or 'without ids'}; {shapes or 'no tensors'}). Lower the batch size or its "
        "duration limit and raise gradient_accumulation_steps, set gradient_checkpointing=True, "
        "or set oom_retry_halves=True, which runs such windows again in halves. "
        f"The device said: {first_line}"
    )


def halved(batches: Sequence[MicroBatch]) -> list[MicroBatch]:
    """Return the same samples in micro-batches of half the size, in order.

    Raises:
        IndivisibleBatchError: all have a single sample, or one holds something that is not one
            entry a sample (named).
    """
    if all(batch.size < 2 for batch in batches):
        raise IndivisibleBatchError("a micro-batch of one sample cannot be halved")
    halves = []
    for batch in batches:
        if batch.size < 2:
            halves.append(batch)
            continue
        middle = (batch.size + 1) // 2
        for part in (slice(0, middle), slice(middle, batch.size)):
            inputs = _part(batch.inputs, part, batch.size, "inputs")
            info = {name: _info_part(value, part, batch.size) for name, value in batch.info.items()}
            size = part.stop - part.start
            halves.append(MicroBatch(inputs, info, size, batch.phase))
    return halves


def _part(value: Any, part: slice, size: int, where: str) -> Any:
    if isinstance(value, Mapping):
        return {name: _part(item, part, size, f"{where}[{name!r}]") for name, item in value.items()}
    if isinstance(value, torch.Tensor):
        if value.ndim and len(value) == size:
            return value[part]
        raise IndivisibleBatchError(
            f"{where} has the shape {tuple(value.shape)}, which is not one entry for each of the "
            f"{size} samples"
        )
    if isinstance(value, (list, tuple)):
        if value and all(isinstance(item, torch.Tensor) for item in value):
            parts = [_part(item, part, size, f"{where}[{n}]") for n, item in enumerate(value)]
            return tuple(parts) if isinstance(value, tuple) else parts
        if len(value) == size:
            return value[part]
        raise IndivisibleBatchError(f"{where} has {len(value)} entries for {size} samples")
    return value


def _info_part(value: Any, part: slice, size: int) -> Any:
    """Per-sample facts are cut; totals of the batch (seconds) describe it and stay."""
    return value[part] if isinstance(value, (list, tuple)) and len(value) == size else value


def _shapes(value: Any, name: str) -> list[tuple[str, tuple[int, ...]]]:
    if isinstance(value, torch.Tensor):
        return [(name or "tensor", tuple(value.shape))]
    if isinstance(value, Mapping):
        pairs = [(f"{name}.{key}" if name else str(key), item) for key, item in value.items()]
    elif isinstance(value, (list, tuple)):
        pairs = [(f"{name}[{number}]", item) for number, item in enumerate(value)]
    else:
        return []
    return [found for key, item in pairs for found in _shapes(item, key)]
