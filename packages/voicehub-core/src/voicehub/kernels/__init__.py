"""What losses with kernels of their own share: C compiled into a cache, and the choice of a path.

No tensor library is imported here; a loss brings its own.
"""

from __future__ import annotations

from voicehub.kernels.c_library import CLibrary
from voicehub.kernels.loss import Loss, load_loss
from voicehub.kernels.selection import KernelChoice, KernelPath, Selection

__all__ = ["CLibrary", "KernelChoice", "KernelPath", "Loss", "Selection", "load_loss"]
