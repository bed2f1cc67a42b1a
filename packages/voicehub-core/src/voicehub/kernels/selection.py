"""Which of a loss's kernels runs: by device, or by name, never by silence.

Environment:
    VOICEHUB_KERNELS: comma-separated ``loss=path``, as in
        ``vits.monotonic_alignment=torch,asr_ctc.ctc=native``; wins over the preference by device.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from voicehub.errors import ConfigurationError
from voicehub.plugins import discovery
from voicehub.plugins.groups import LOSSES
from voicehub.suggest import did_you_mean

VARIABLE = "VOICEHUB_KERNELS"


def _usable() -> str | None:
    return None


@dataclass(frozen=True)
class KernelPath:
    """One implementation of a loss.

    Attributes:
        name: ``c``, ``triton``, ``torch``, ...
        devices: device types it runs on; empty for all.
        unavailable: why it cannot be used in this process, or None; called once, may compile.
    """

    name: str
    devices: tuple[str, ...] = ()
    unavailable: Callable[[], str | None] = _usable

    def runs_on(self, device: str) -> bool:
        """Whether it can take tensors of a device type."""
        return not self.devices or device in self.devices


@dataclass(frozen=True)
class Selection:
    """The path that is live on a device type, and why."""

    path: str
    device: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path} on {self.device}: {self.reason}"


class KernelChoice:
    """The paths of one loss, most wanted first.

    A wanted path that cannot be used gives way to the next with one warning; a path asked for by
    name never gives way.

    Args:
        owner: name of the loss in ``voicehub.losses``.
        paths: at least one must run everywhere, or ``select`` raises where none does.
    """

    def __init__(self, owner: str, paths: Sequence[KernelPath]) -> None:
        self.owner = owner
        self.paths = tuple(paths)
        self._known: dict[tuple[str, str | None, str], Selection] = {}

    def select(self, device: str, asked: str | None = None) -> Selection:
        """The path for tensors of a device type.

        Args:
            device: ``cpu``, ``cuda``, ...
            asked: name of a path; None leaves it to ``VOICEHUB_KERNELS`` and the preference.

        Raises:
            ConfigurationError: the path asked for does not exist, or cannot be used here.
        """
        key = (device, asked, os.environ.get(VARIABLE, ""))
        found = self._known.get(key)
        if found is None:
            by = "asked for by the caller"
            if asked is None:
                asked, by = overrides(key[2]).get(self.owner), f"asked for by {VARIABLE}"
            found = self._preferred(device) if asked is None else self._named(asked, device, by)
            self._known[key] = found
        return found

    def _preferred(self, device: str) -> Selection:
        problems: list[str] = []
        for path in self.paths:
            if not path.runs_on(device):
                continue
            problem = path.unavailable()
            if problem is not None:
                problems.append(f"{path.name} cannot be used: {problem}")
                continue
            if not problems:
                return Selection(path.name, device, f"preferred on {device}")
            reason = "; ".join(problems)
            warnings.warn(
                f"{self.owner} runs its {path.name} path on {device}, which is slower; {reason}.",
                RuntimeWarning,
                stacklevel=4,
            )
            return Selection(path.name, device, reason)
        raise ConfigurationError(
            f"{self.owner}: no kernel for {device}; {'; '.join(problems) or 'none is written'}."
        )

    def _named(self, asked: str, device: str, by: str) -> Selection:
        names = [path.name for path in self.paths]
        if asked not in names:
            raise ConfigurationError(
                f"{self.owner} has no kernel {asked!r}, {by}. There are: {', '.join(names)}."
                + did_you_mean(asked, names)
            )
        path = self.paths[names.index(asked)]
        problem = path.unavailable() if path.runs_on(device) else f"it does not run on {device}"
        if problem is not None:
            raise ConfigurationError(
                f"{self.owner}: kernel {asked!r}, {by}, cannot be used: {problem}."
            )
        return Selection(asked, device, by)


@lru_cache(maxsize=8)
def overrides(text: str) -> dict[str, str]:
    """Parse ``VOICEHUB_KERNELS``: path by loss.

    Raises:
        ConfigurationError: an item is not ``loss=path``, or no such loss is installed.
    """
    found: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        loss, equals, path = (part.strip() for part in item.partition("="))
        if not (loss and equals and path):
            raise ConfigurationError(f"{VARIABLE}: expected loss=path, got {item!r}.")
        known = discovery.names(LOSSES)
        if loss not in known:
            raise ConfigurationError(
                f"{VARIABLE}: no installed loss is named {loss!r}.{did_you_mean(loss, known)}"
            )
        found[loss] = path
    return found
