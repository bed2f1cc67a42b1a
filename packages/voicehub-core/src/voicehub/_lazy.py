"""Lazy public names (PEP 562): importing a package loads nothing until a name is asked for."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_exports(
    package: str, sources: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``(__getattr__, __dir__)`` for a module that re-exports names.

    Args:
        package: The module's ``__name__``.
        sources: The module that defines each public name.
    """

    def get(name: str) -> Any:
        if name not in sources:
            raise AttributeError(f"module {package!r} has no attribute {name!r}{_hint(name)}")
        value = getattr(importlib.import_module(sources[name]), name)
        # Kept, so that the next look-up is a plain one.
        setattr(sys.modules[package], name, value)
        return value

    def _hint(name: str) -> str:
        if name.startswith("_"):  # Probes of the import system; they need no advice.
            return ""
        from voicehub.suggest import did_you_mean

        return did_you_mean(name, sources).replace(" Did", ". Did")

    def listing() -> list[str]:
        return sorted({*vars(sys.modules[package]), *sources})

    return get, listing
