"""The VoiceHub packages that are installed here, so that the host runs the same."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

from voicehub_remote.errors import RemoteError

OWN = "voicehub-remote"  # what runs here is not needed there
_NOT_PACKAGES = frozenset(
    {"tests", "test", "docs", "examples", "conftest.py", "noxfile.py", "setup.py"}
)
_KEPT_METADATA = ("METADATA", "WHEEL", "entry_points.txt", "top_level.txt")


@dataclass(frozen=True)
class Installed:
    """One distribution.

    Attributes:
        name: lower case, with dashes.
        version: its version.
        roots: folders that its code is imported from, where it is installed from a checkout;
            none where it came from an index.
        requires: lines of its requirements, without those of extras and of VoiceHub itself.
        metadata: its ``.dist-info``.
    """

    name: str
    version: str
    roots: tuple[Path, ...]
    requires: tuple[str, ...]
    metadata: Path

    @property
    def is_checkout(self) -> bool:
        """Whether its sources are sent, rather than its version named."""
        return bool(self.roots)


def installed() -> list[Installed]:
    """All of VoiceHub's packages and plugins here, by name.

    Raises:
        RemoteError: one is installed from a checkout in a way that does not tell where its code
            lies.
    """
    found = {}
    for one in metadata.distributions():
        name = (one.metadata["Name"] or "").lower().replace("_", "-").replace(".", "-")
        if name != OWN and name not in found and _is_ours(name, one):
            found[name] = _read(name, one)
    names = set(found)
    return [_without_siblings(found[name], names) for name in sorted(found)]


def stage(packages: list[Installed], folder: Path) -> None:
    """Lay out links to the sources as a folder that Python can import from, metadata included.

    Args:
        packages: those from a checkout count.
        folder: must be there and empty.
    """
    for package in packages:
        for root in package.roots:
            for path in _importable(root):
                (folder / path.name).symlink_to(path)
        if package.is_checkout:
            to = folder / package.metadata.name
            to.mkdir()
            for name in _KEPT_METADATA:
                if (package.metadata / name).is_file():
                    shutil.copyfile(package.metadata / name, to / name)


def stage_all(folder: str) -> None:
    """Make a folder and ``stage`` what is installed in it: the command that a dry run shows."""
    Path(folder).mkdir(parents=True)
    stage(installed(), Path(folder))


def _is_ours(name: str, one: metadata.Distribution) -> bool:
    if name.startswith("voicehub-"):
        return True
    return any(entry.group.startswith("voicehub.") for entry in one.entry_points)


def _read(name: str, one: metadata.Distribution) -> Installed:
    folder = Path(os.fspath(one._path))  # type: ignore[attr-defined]
    roots = tuple(_roots(name, one, folder.parent)) if _is_editable(one) else ()
    requires = [line for line in one.requires or [] if "extra ==" not in line]
    return Installed(name, one.version, roots, tuple(requires), folder)


def _is_editable(one: metadata.Distribution) -> bool:
    text = one.read_text("direct_url.json")
    return bool(text) and bool(json.loads(text or "").get("dir_info", {}).get("editable"))


def _roots(name: str, one: metadata.Distribution, site: Path) -> Iterator[Path]:
    """Folders that its ``.pth`` files put on the path."""
    lines = [
        line
        for file in one.files or []
        if file.suffix == ".pth"
        for line in (site / file).read_text(encoding="utf-8").splitlines()
    ]
    roots = [Path(line) for line in lines if line.strip() and Path(line).is_dir()]
    if not roots:
        raise RemoteError(
            f"{name} is installed here from a checkout, in a way that does not tell where its code "
            "lies. Install it without -e, or with a build backend that writes a .pth file."
        )
    yield from roots


def _importable(root: Path) -> Iterator[Path]:
    for path in sorted(root.iterdir()):
        if path.name in _NOT_PACKAGES:
            continue
        if path.suffix == ".py" or (path / "__init__.py").is_file():
            yield path


def _without_siblings(package: Installed, names: set[str]) -> Installed:
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    kept = [
        line for line in package.requires if canonicalize_name(Requirement(line).name) not in names
    ]
    return replace(package, requires=tuple(kept))
