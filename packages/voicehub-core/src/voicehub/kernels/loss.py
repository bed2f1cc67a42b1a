"""A loss as it is registered under ``voicehub.losses``, and how a recipe gets it by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from voicehub.errors import PluginError
from voicehub.kernels.selection import KernelChoice, Selection
from voicehub.plugins import loading
from voicehub.plugins.groups import LOSSES


@dataclass(frozen=True)
class Loss:
    """One registered loss: its functions, and its kernels where it has its own.

    Attributes:
        name: as in the entry point, ``family.loss``.
        functions: what a recipe calls, by name; a loss of one function can be called itself.
        kernels: None where plain torch operators are all there is.
    """

    name: str
    functions: Mapping[str, Callable[..., Any]]
    kernels: KernelChoice | None = None

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Call the only function.

        Raises:
            PluginError: there are several.
        """
        if len(self.functions) != 1:
            raise PluginError(
                f"loss {self.name!r} has several functions: take one of "
                f"functions[...], {', '.join(map(repr, self.functions))}."
            )
        (function,) = self.functions.values()
        return function(*arguments, **options)

    def selected_kernel(self, device: str = "cpu") -> Selection:
        """The path that is live on a device type, and why."""
        if self.kernels is None:
            return Selection("torch", device, "plain torch operators, no kernel of its own")
        return self.kernels.select(device)

    def selections(self) -> tuple[Selection, ...]:
        """The live path of every device type that this process has."""
        import torch

        devices = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
        return tuple(self.selected_kernel(device) for device in devices)


def load_loss(name: str) -> Loss:
    """Return a registered loss by its name, as ``vits.monotonic_alignment``.

    Raises:
        PluginError: no such loss, its import fails, or its entry point is no :class:`Loss`.
    """
    found = loading.load(LOSSES, name)
    if not isinstance(found, Loss):
        raise PluginError(
            f"Plugin {name!r} in {LOSSES} must be a voicehub.kernels.Loss, "
            f"got {type(found).__name__}."
        )
    return found
