"""Bytes that a step holds at its worst moment, and what they are for.

Allocations and releases are logged with a serial number, in order. What a block is for is often
known only later (a temporary of a backward becomes a gradient), so the log is read once the step
is over.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.utils._pytree import tree_leaves

from voicehub.planning.kernels import passing_bytes

WEIGHTS, GRADIENTS, OPTIMIZER = "weights", "gradients", "optimizer"
AVERAGES, INPUTS, ACTIVATIONS = "averages", "inputs", "activations"
LOSS, WORKSPACE = "logits and loss", "workspace"
#: Messages in which gradients travel between processes.
BUCKETS = "gradient buckets"
KINDS = (WEIGHTS, GRADIENTS, BUCKETS, OPTIMIZER, AVERAGES, INPUTS, ACTIVATIONS, LOSS, WORKSPACE)


class Allocations:
    """Watches ops for the storages that they make.

    Args:
        on_card: what kernels of a card make and give up counts, not what those of a CPU do.

    Attributes:
        held: bytes held now.
        peak: most bytes held since :meth:`start_step`.
    """

    def __init__(self, *, on_card: bool = True) -> None:
        self._on_card = on_card
        self.held = 0
        self.peak = 0
        self._serial = 0
        self._live: dict[int, tuple[int, int]] = {}  # storage -> serial, bytes
        self._kinds: dict[int, str] = {}  # of serials
        self._log: list[tuple[int, int]] = []  # serial, bytes (negative: given back)
        self._peak_at = 0
        self._depth = 0
        self._stepping = False

    # -- what is told ------------------------------------------------------------------

    def __call__(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any
    ) -> None:
        """Take what an op has made."""
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._take(leaf, self._kind_now())
        self._pass_by(passing_bytes(func, args, result, on_card=self._on_card))

    def name(self, kind: str, tensors: Iterable[Tensor]) -> None:
        """Say what tensors are for, whenever they were made."""
        for tensor in tensors:
            serial = self._take(tensor, kind)
            self._kinds[serial] = kind

    def start_step(self) -> None:
        """Forget the past: what is held now is there from the beginning."""
        self._log = [(serial, size) for serial, size in self._live.values()]
        self.peak, self._peak_at = self.held, len(self._log)
        self._stepping = False

    def optimizers_begin(self) -> None:
        """The backward passes of a stage are over."""
        self._stepping = True

    def optimizers_end(self) -> None:
        """The next phase begins."""
        self._stepping = False

    @contextmanager
    def inside_modules(self) -> Iterator[None]:
        """Tell what forwards of modules make from what a loss makes outside of them."""
        before = register_module_forward_pre_hook(self._enter)
        after = register_module_forward_hook(self._leave, always_call=True)
        try:
            yield
        finally:
            before.remove()
            after.remove()

    # -- what is asked -----------------------------------------------------------------

    def at_peak(self) -> dict[str, int]:
        """Bytes by kind at the worst moment since :meth:`start_step`."""
        sizes: dict[int, int] = {}
        for serial, size in self._log[: self._peak_at]:
            if size < 0:
                sizes.pop(serial, None)
            else:
                sizes[serial] = size
        found: Counter[str] = Counter()
        for serial, size in sizes.items():
            found[self._kinds[serial]] += size
        return {kind: found[kind] for kind in KINDS if found[kind]}

    # -- inside ------------------------------------------------------------------------

    def _enter(self, module: nn.Module, inputs: Any) -> None:
        self._depth += 1

    def _leave(self, module: nn.Module, inputs: Any, output: Any) -> None:
        self._depth = max(0, self._depth - 1)
        if self._depth == 0 and torch._C._current_graph_task_id() == -1:
            for leaf in tree_leaves(output):
                if isinstance(leaf, Tensor) and leaf.is_floating_point():
                    known = self._live.get(leaf.untyped_storage()._cdata)
                    if known is not None and self._kinds[known[0]] == ACTIVATIONS:
                        self._kinds[known[0]] = LOSS

    def _kind_now(self) -> str:
        if self._stepping or torch._C._current_graph_task_id() != -1:
            return WORKSPACE
        return ACTIVATIONS if self._depth else LOSS

    def _pass_by(self, size: int) -> None:
        """Count what an op has made and given up."""
        if not size:
            return
        self._serial += 1
        self._kinds[self._serial] = WORKSPACE
        self._log.append((self._serial, size))
        self._see(self.held + size)
        self._log.append((self._serial, -size))

    def _see(self, held: int) -> None:
        if held > self.peak:
            self.peak, self._peak_at = held, len(self._log)

    def _take(self, tensor: Tensor, kind: str) -> int:
        storage = tensor.untyped_storage()
        key = storage._cdata
        known = self._live.get(key)
        if known is not None:
            return known[0]
        self._serial += 1
        serial, size = self._serial, int(storage.nbytes())
        self._live[key] = (serial, size)
        self._kinds[serial] = kind
        self._log.append((serial, size))
        self.held += size
        self._see(self.held)
        weakref.finalize(storage, self._release, key)
        return serial

    def _release(self, key: int) -> None:
        serial, size = self._live.pop(key)
        self._log.append((serial, -size))
        self.held -= size
