"""Load plugins one by one and tell what each is, what it cost and what it printed."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from voicehub.errors import PluginError
from voicehub.plugins import loading
from voicehub.plugins.discovery import PluginEntry, PluginState
from voicehub.plugins.groups import LOSSES, PLUGIN_API, TRAINING_SPECS

_TENSOR_LIBRARIES = ("torch", "tensorflow", "jax")


@dataclass(frozen=True)
class Inspection:
    """One entry after it was loaded.

    Attributes:
        entry: With its state and the reason of a failure.
        seconds: What its import took here, with all that it was the first to import.
        details: Of a spec: task, support, phases; of a loss: its kernel, and where it tells so
            ``selections``: device, path and reason of each device of this process.
        remarks: What a plugin should not do at import, and this one did.
    """

    entry: PluginEntry
    seconds: float | None = None
    details: dict[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


def inspect_each(
    between: Callable[[], object] = lambda: None, groups: Collection[str] | None = None
) -> list[Inspection]:
    """Load every available entry by itself; a broken one does not disturb the others.

    Args:
        between: Called after the light specs and before everything else. What it imports, a
            tensor library for instance, is on no plugin's bill.
        groups: Entry-point groups to inspect; None inspects all.
    """
    entries = [entry for entry in loading.inspect(groups) if entry.group != PLUGIN_API]
    light = [entry for entry in entries if entry.group == TRAINING_SPECS]
    done = {entry: _inspect(entry) for entry in light}
    if len(light) < len(entries):
        between()
    return [done[entry] if entry in done else _inspect(entry) for entry in entries]


def _inspect(entry: PluginEntry) -> Inspection:
    if entry.state not in (PluginState.AVAILABLE, PluginState.LOADED):
        return Inspection(entry)
    before = set(sys.modules)
    state, reason, value = PluginState.LOADED, "", None
    with _silenced() as printed:
        try:
            value = loading.load(entry.group, entry.name)
        except PluginError as error:
            state, reason = PluginState.BROKEN, str(error)
    details, complaint = _details(entry, value)
    if complaint:
        state, reason = PluginState.BROKEN, complaint
    return Inspection(
        entry._replace(state=state, reason=reason),
        loading.load_seconds(entry),
        details,
        tuple(_remarks(entry, printed.getvalue(), set(sys.modules) - before)),
    )


@contextlib.contextmanager
def _silenced() -> Iterator[io.StringIO]:
    """Keep what a plugin prints while it is imported out of our own output."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        yield printed


def _details(entry: PluginEntry, value: object) -> tuple[dict[str, Any], str]:
    """Return what is worth showing, and why the value is not what its group asks for."""
    if value is None:
        return {}, ""
    if entry.group == TRAINING_SPECS:
        try:
            return {
                "task": value.task.value,  # type: ignore[attr-defined]
                "support": value.support.value,  # type: ignore[attr-defined]
                "family": value.family,  # type: ignore[attr-defined]
                "phases": list(value.phase_map),  # type: ignore[attr-defined]
            }, ""
        except AttributeError:
            return {}, (
                f"Plugin {entry.name!r} of {entry.distribution} {entry.version} must be a "
                f"ModelTrainingSpec, got {type(value).__name__}."
            )
    return (_kernel(value) if entry.group == LOSSES else {}), ""


def _kernel(loss: object) -> dict[str, Any]:
    """The kernel of a loss, and by device where it is a ``voicehub.kernels.Loss`` or like one."""
    kernel = getattr(loss, "selected_kernel", None)
    if not callable(kernel):
        return {}
    try:
        details: dict[str, Any] = {"kernel": str(kernel())}
        selections = getattr(loss, "selections", None)
        if callable(selections):
            details["selections"] = [
                {"device": found.device, "path": found.path, "reason": found.reason}
                for found in selections()
            ]
        return details
    except Exception as error:
        return {"kernel": f"none: {type(error).__name__}: {error}"}


def _remarks(entry: PluginEntry, printed: str, imported: set[str]) -> Iterator[str]:
    owner = f"{entry.distribution} {entry.version}: {entry.name!r}"
    if printed.strip():
        first = printed.strip().splitlines()[0]
        yield f"{owner} prints while it is imported: {first[:80]!r}"
    heavy = [name for name in _TENSOR_LIBRARIES if name in imported]
    if entry.group == TRAINING_SPECS and heavy:
        yield f"{owner} imports {', '.join(heavy)}; a spec's module must stay light"
