"""Losses of the toy family: one with kernels, one of a foreign kind."""

from __future__ import annotations

from voicehub.kernels import KernelChoice, KernelPath, Loss

KERNELS = KernelChoice(
    "toy.square",
    (KernelPath("c", ("cpu",), lambda: "no compiler in this toy"), KernelPath("torch")),
)
SQUARE = Loss("toy.square", {"square": lambda x: x * x}, KERNELS)


class Foreign:
    """A loss that only says which kernel it uses."""

    @staticmethod
    def selected_kernel() -> str:
        return "assembly"
