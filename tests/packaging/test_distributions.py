"""What our wheels declare: licence, versions, and no GPL package outside the extras."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import metadata
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
PACKAGES = sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml"))
PLUGINS = sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))
LICENCE = (ROOT / "LICENSE").read_text(encoding="utf-8")

every_distribution = pytest.mark.parametrize(
    "package", [*PACKAGES, *PLUGINS], ids=lambda path: path.name
)
every_package = pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)


def project(package: Path) -> dict[str, Any]:
    settings = tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))
    return dict(settings["project"])


def is_gpl(distribution: metadata.Distribution) -> bool:
    """Whether its metadata names the GNU (Affero) General Public Licence, not the Lesser one."""
    fields = distribution.metadata
    said = [fields.get("License-Expression") or "", (fields.get("License") or "")[:200]]
    said += [line for line in fields.get_all("Classifier") or [] if line.startswith("License")]
    return any(
        re.search(r"(?<!L)\bA?GPL|General Public License", line)
        and not re.search(r"Lesser|LGPL|\bOR\b|exception", line)
        for line in said
    )


def required(name: str, seen: set[str]) -> Iterator[metadata.Distribution]:
    """``name`` and all that it requires without extras, as far as installed here."""
    key = canonicalize_name(name)
    if key in seen:
        return
    seen.add(key)
    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return
    yield distribution
    for line in distribution.requires or []:
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield from required(requirement.name, seen)


@every_distribution
def test_nothing_required_is_gpl(package: Path) -> None:
    name = project(package)["name"]
    found = list(required(name, set()))
    assert found, f"{name} is not installed: run `nox -s dev`"
    gpl = [distribution.name for distribution in found if is_gpl(distribution)]
    assert not gpl, f"{name} requires {gpl}: move it to an extra"


def test_the_gpl_check_recognises_a_gpl_package() -> None:
    class Fake(metadata.Distribution):
        def __init__(self, text: str) -> None:
            self.text = text

        def read_text(self, filename: str) -> str | None:
            return self.text if filename == "METADATA" else None

        def locate_file(self, path: Any) -> Any:
            raise NotImplementedError

    def says(line: str) -> bool:
        return is_gpl(Fake(f"Metadata-Version: 2.1\nName: x\nVersion: 1\n{line}\n"))

    assert says("License-Expression: GPL-3.0-or-later")
    assert says("License: AGPL-3.0")
    assert says("Classifier: License :: OSI Approved :: GNU General Public License v3 (GPLv3)")
    assert not says("License: LGPLv2+")
    assert not says("License-Expression: Apache-2.0")
    assert not says("Classifier: License :: OSI Approved :: GNU Lesser General Public License v3")


@every_package
def test_the_voice_of_the_quickstart_is_an_extra(package: Path) -> None:
    """Its loader declares no licence that a check could read; the library in it is GPL-3.0."""
    settings = project(package)
    names = {canonicalize_name(Requirement(line).name) for line in settings["dependencies"]}
    assert not names & {"espeakng-loader", "phonemizer", "py-espeak-ng", "piper-phonemize"}
    if package.name == "voicehub-data":
        extra = {Requirement(line).name for line in settings["optional-dependencies"]["synth"]}
        assert "espeakng-loader" in extra


@every_distribution
def test_licence_and_papers(package: Path) -> None:
    settings = project(package)
    assert settings["license"] == "Apache-2.0"
    assert settings["requires-python"] == ">=3.10"
    assert (package / "LICENSE").read_text(encoding="utf-8") == LICENCE
    assert (package / settings["readme"]).read_text(encoding="utf-8").startswith("# ")
    assert (package / "CHANGELOG.md").is_file()
    source = package / "src" / package.name.replace("-", "_").replace("voicehub_core", "voicehub")
    assert (source / "py.typed").is_file()


@every_package
def test_siblings_are_pinned_to_the_same_version(package: Path) -> None:
    settings = project(package)
    for line in settings["dependencies"]:
        requirement = Requirement(line)
        if requirement.name.startswith("voicehub"):
            assert str(requirement.specifier) == f"=={settings['version']}"


@every_distribution
def test_installed_metadata_is_that_of_the_source(package: Path) -> None:
    """A stale editable install would test yesterday's entry points."""
    settings = project(package)
    installed = metadata.distribution(settings["name"])
    assert installed.version == settings["version"]
    declared = {
        (group, name, value)
        for group, entries in settings.get("entry-points", {}).items()
        for name, value in entries.items()
    }
    there = {(e.group, e.name, e.value) for e in installed.entry_points}
    ours = {entry for entry in there if entry[0].startswith(("voicehub.", "pytest11"))}
    assert ours == declared
