"""What a package imports, it or a sibling that it requires declares."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {path.parent.name: path.parent for path in ROOT.glob("packages/*/pyproject.toml")}

#: Modules that are half of a requirement: it cannot be installed without them, and pins them.
COME_WITH = {
    "pydantic_core": "pydantic",
    "omegaconf": "hydra-core",
    "yaml": "hydra-core",
    "tokenizers": "transformers",
    "huggingface_hub": "transformers",
}
#: Imported by what pytest alone loads.
FOR_TESTS = {"pytest"}


def declared(name: str) -> set[str]:
    """Requirements of a package and of the siblings it requires, extras included."""
    settings: dict[str, Any] = tomllib.loads((PACKAGES[name] / "pyproject.toml").read_text())
    project = settings["project"]
    extras = project.get("optional-dependencies", {}).values()
    lines = [*project["dependencies"], *(line for extra in extras for line in extra)]
    found = {canonicalize_name(Requirement(line).name) for line in lines}
    for sibling in found & PACKAGES.keys() - {name}:
        found |= declared(sibling)
    return found | {name}


def imported(source: str) -> Iterator[tuple[str, int]]:
    """Top-level modules of absolute imports anywhere in a file, with their lines.

    Those within ``try`` are of packages that may be missing, and that the code then names.
    """
    tree = ast.parse(source)
    tried = [node for node in ast.walk(tree) if isinstance(node, ast.Try)]
    optional = {id(inner) for node in tried for part in node.body for inner in ast.walk(part)}
    for node in ast.walk(tree):
        if id(node) in optional:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name.partition(".")[0], node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.partition(".")[0], node.lineno


@cache
def owners_of() -> Mapping[str, list[str]]:
    """Distributions of every module that is installed."""
    return packages_distributions()


def undeclared(name: str) -> list[str]:
    """Imports whose distribution nobody declares."""
    allowed, distributions = declared(name), owners_of()
    missing = []
    for path in sorted((PACKAGES[name] / "src").rglob("*.py")):
        for module, line in imported(path.read_text(encoding="utf-8")):
            if module in sys.stdlib_module_names or module in FOR_TESTS or module == "voicehub":
                continue
            owners = [COME_WITH.get(module), *distributions.get(module, [module])]
            if not allowed & {canonicalize_name(owner) for owner in owners if owner}:
                missing.append(f"{path.relative_to(ROOT)}:{line}: {module}")
    return missing


@pytest.mark.parametrize("name", sorted(PACKAGES))
def test_every_import_is_declared(name: str) -> None:
    assert undeclared(name) == []


def test_lazy_imports_are_seen() -> None:
    source = "import os.path\ndef f():\n    from filelock import FileLock\n    from . import near\n"
    tried = "try:\n    import maybe\nexcept ImportError:\n    import instead\n"
    assert list(imported(source)) == [("os", 1), ("filelock", 3)]
    assert list(imported(tried)) == [("instead", 4)]
