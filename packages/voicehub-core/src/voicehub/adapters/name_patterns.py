"""Patterns over the names of parameters and modules, for freezing and parameter groups.

A pattern is a shell glob (``*``, ``?``, ``[0-3]``; ``*`` crosses dots, case counts). It matches a
parameter when it matches the parameter's name or the path of any module that holds it: ``encoder``,
``encoder.layers.[0-3]``, ``*.bias``. In roots of several components, ``/`` in a component's
key reads as a dot.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache

from torch import nn

from voicehub.errors import ConfigurationError
from voicehub.suggest import did_you_mean


@dataclass(frozen=True)
class Matches:
    """What a pattern selects: parameters by their first name, and the topmost modules."""

    parameters: dict[str, nn.Parameter]
    modules: tuple[nn.Module, ...]


class NamedGraph:
    """The names of a module graph; a tied parameter answers to each of its names."""

    def __init__(self, root: nn.Module) -> None:
        self._first: dict[nn.Parameter, str] = {p: n for n, p in root.named_parameters()}
        self._names = [(_dotted(n), p) for n, p in root.named_parameters(remove_duplicate=False)]
        self._modules = [(_dotted(name), module) for name, module in root.named_modules() if name]

    def match(self, pattern: str, setting: str) -> Matches:
        """Select by one pattern.

        Args:
            pattern: See the module's documentation.
            setting: What the pattern was given for, named in the error.

        Raises:
            ConfigurationError: nothing has such a name; the nearest ones are given.
        """
        hit = {p: None for name, p in self._names if matches(pattern, name)}
        modules = {path: module for path, module in self._modules if matches(pattern, path)}
        if not hit and not modules:
            known = [name for name, _ in self._modules] + [name for name, _ in self._names]
            raise ConfigurationError(
                f"{setting}: the pattern '{pattern}' matches no parameter and no module."
                f"{did_you_mean(pattern, known) or _examples(known)}"
            )
        topmost = tuple(m for path, m in modules.items() if not _inside(path, modules))
        return Matches({self._first[p]: p for p in hit}, topmost)


@lru_cache(maxsize=65536)
def matches(pattern: str, name: str) -> bool:
    """Whether a pattern matches a dotted name or a path that leads to it."""
    return any(fnmatchcase(part, pattern) for part in _prefixes(name))


def _prefixes(name: str) -> Iterator[str]:
    yield name
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


def _inside(path: str, others: dict[str, nn.Module]) -> bool:
    parents = list(_prefixes(path))[1:]
    return any(parent in others for parent in parents)


def _dotted(name: str) -> str:
    return name.replace("/", ".")


def _examples(known: list[str]) -> str:
    return f" Names here are, for example, {', '.join(repr(name) for name in known[:5])}."
