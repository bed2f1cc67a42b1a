"""Buffers of a model as they were before an update: running statistics, codebooks, counters.

A forward changes them before anything knows whether its loss is finite. ``BufferGuard`` keeps a
copy and puts it back when the update is dropped. What did not change since the last copy is not
copied again, which its version counter says; so buffers that never change cost a look a step.
Running statistics are copied before every update, for the kernels of norms do not count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(slots=True)
class _Kept:
    module: nn.Module
    name: str
    tensor: Tensor
    version: int
    copy: Tensor
    uncounted: bool  # whether it may change without its version saying so
    exposed: bool = False  # whether it is one of those, in a module that trains


class BufferGuard:
    """Copies of all buffers of a module, one more of each in memory."""

    def __init__(self, module: nn.Module) -> None:
        self._kept: list[_Kept] = []
        seen: set[int] = set()
        for part in module.modules():
            for name, tensor in part._buffers.items():
                # Tensors made in inference mode have no version; nothing in training changes them.
                if tensor is None or id(tensor) in seen or tensor.is_inference():
                    continue
                seen.add(id(tensor))
                self._kept.append(
                    _Kept(
                        part,
                        name,
                        tensor,
                        tensor._version,
                        tensor.detach().clone(),
                        # The kernels of batch and instance norm write these uncounted.
                        uncounted=name.startswith("running_"),
                    )
                )

    def remember(self) -> None:
        """Take in what has changed since the last call."""
        changed = []
        for kept in self._kept:
            tensor: Any = kept.module._buffers[kept.name]
            kept.exposed = kept.uncounted and kept.module.training
            if tensor is not kept.tensor:
                kept.tensor, kept.version = tensor, tensor._version
                kept.copy = tensor.detach().clone()
            elif kept.exposed or tensor._version != kept.version:
                kept.version = tensor._version
                changed.append(kept)
        if changed:
            with torch.no_grad():
                torch._foreach_copy_([k.copy for k in changed], [k.tensor for k in changed])

    def restore(self) -> None:
        """Put back what has changed since ``remember``."""
        with torch.no_grad():
            for kept in self._kept:
                kept.module._buffers[kept.name] = kept.tensor
                if kept.exposed or kept.tensor._version != kept.version:
                    kept.tensor.copy_(kept.copy)
                    kept.version = kept.tensor._version
