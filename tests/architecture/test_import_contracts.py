"""The contracts on imports hold, and none of the packages has escaped them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
SHARED = {"voicehub", "voicehub_data", "voicehub_hf"}


@pytest.fixture(scope="module")
def contracts() -> dict[str, Any]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    linter = settings["tool"]["importlinter"]
    return {"": linter, **{contract["id"]: contract for contract in linter["contracts"]}}


def import_names(place: str = "packages") -> set[str]:
    return {
        package.name
        for package in ROOT.glob(f"{place}/*/src/*")
        if (package / "__init__.py").is_file()
    }


def test_contracts_hold() -> None:
    program = Path(sys.executable).parent / "lint-imports"
    result = subprocess.run(
        [str(program), "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr


def test_every_package_is_under_contract(contracts: dict[str, Any]) -> None:
    plugins = import_names("plugins")
    assert set(contracts[""]["root_packages"]) == import_names() | plugins
    assert set(contracts["plugins"]["source_modules"]) == plugins
    assert set(contracts["plugins-apart"]["modules"]) == plugins
    assert set(contracts["packages-without-plugins"]["forbidden_modules"]) == plugins
    assert set(contracts["packages-without-plugins"]["source_modules"]) == import_names()
    assert set(contracts["plugins"]["forbidden_modules"]) == import_names() - {
        "voicehub",
        "voicehub_data",
    }


def test_every_family_is_independent_of_the_others(contracts: dict[str, Any]) -> None:
    families = import_names() - SHARED
    assert set(contracts["families"]["modules"]) == families
    layers = contracts["distributions"]["layers"]
    assert {name.strip() for name in layers[0].split("|")} == families
    assert layers[1:] == ["voicehub_hf", "voicehub_data", "voicehub"]
