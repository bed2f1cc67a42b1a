"""Buffers of a model as they were before an update: running statistics, codebooks, counters.

A forward changes them before anything knows whether its loss is finite. ``BufferGuard`` keeps a
copy and puts it back when the update is dropped. What did not change since the last copy is not
copied again, which its version counter says; so buffers that never change cost a look a step.
Running statistics are copied before every update, for the kernels of norms do not count.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(slots=True)
class _Kept:
    module: nn.Module
    name: str
    uncounted: bool  # whether it may change without its version saying so
    tensor: Tensor | None = None
    version: int = 0
    copy: Tensor | None = None
    exposed: bool = False  # whether it is one of those, in a module that trains

    def take(self, tensor: Tensor | None) -> None:
        """Keep another tensor than before, or None where a module has let its buffer go."""
        self.tensor, self.version, self.copy = tensor, 0, None
        # Tensors made in inference mode have no version; nothing in training changes them.
        if tensor is not None and not tensor.is_inference():
            self.version, self.copy = tensor._version, tensor.detach().clone()

    def has_changed(self) -> bool:
        """Whether the content of the same tensor may be another."""
        if self.tensor is None or self.copy is None:
            return False
        return self.exposed or self.tensor._version != self.version


class BufferGuard:
    """Copies of all buffers of a module, one more of each in memory."""

    def __init__(self, module: nn.Module) -> None:
        self._kept: list[_Kept] = []
        seen: set[int] = set()
        for part in module.modules():
            for name, tensor in part._buffers.items():
                if tensor is not None and id(tensor) in seen:
                    continue
                seen.add(id(tensor))
                # The kernels of batch and instance norm write these uncounted.
                kept = _Kept(part, name, uncounted=name.startswith("running_"))
                kept.take(tensor)
                self._kept.append(kept)

    def remember(self) -> None:
        """Take in what has changed since the last call."""
        tensors: list[Tensor] = []
        copies: list[Tensor] = []
        for kept in self._kept:
            tensor = kept.module._buffers.get(kept.name)
            kept.exposed = kept.uncounted and kept.module.training
            if tensor is not kept.tensor:
                kept.take(tensor)
            elif tensor is not None and kept.copy is not None and kept.has_changed():
                kept.version = tensor._version
                tensors.append(tensor)
                copies.append(kept.copy)
        if tensors:
            with torch.no_grad():
                torch._foreach_copy_(copies, tensors)

    def restore(self) -> None:
        """Put back what has changed since ``remember``."""
        with torch.no_grad():
            for kept in self._kept:
                if kept.module._buffers.get(kept.name) is not kept.tensor:
                    kept.module._buffers[kept.name] = kept.tensor
                if kept.tensor is not None and kept.copy is not None and kept.has_changed():
                    kept.tensor.copy_(kept.copy)
                    kept.version = kept.tensor._version
