"""Which of several processes this one is, before and beside a strategy that knows it better."""

from __future__ import annotations

import os
import sys


def is_primary() -> bool:
    """Whether this process writes shared files; a process started alone always does."""
    return int(os.environ.get("RANK", "0") or 0) == 0


def wait_for_all() -> None:
    """Wait for the other processes, where torch.distributed connects them."""
    torch = sys.modules.get("torch")  # a process that never loaded it has no group to wait for
    if (
        torch is not None
        and torch.distributed.is_available()
        and torch.distributed.is_initialized()
    ):
        torch.distributed.barrier()
