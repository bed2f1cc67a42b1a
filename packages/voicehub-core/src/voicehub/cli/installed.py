"""Versions of installed distributions, and who owns the import name ``voicehub``; metadata only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

CORE = "voicehub-core"
SINGLE_PACKAGE = "voicehub"

# What decides a run's numbers besides our own packages.
_LIBRARIES = (
    "torch",
    "torchaudio",
    "numpy",
    "safetensors",
    "pydantic",
    "hydra-core",
    "transformers",
    "peft",
    "tokenizers",
    "sentencepiece",
    "soundfile",
    "soxr",
    "jiwer",
    "datasets",
    "accelerate",
    "flashlight-text",
    "kenlm",
)


def installed_versions() -> tuple[dict[str, str], dict[str, str]]:
    """Versions of every VoiceHub distribution, and of the libraries that decide the numbers."""
    from importlib_metadata import distributions

    ours: dict[str, str] = {}
    libraries: dict[str, str] = {}
    for distribution in distributions():
        name = _name_of(distribution)
        if name.startswith("voicehub") or _declares_plugin(distribution):
            ours.setdefault(name, str(distribution.version))
        elif name in _LIBRARIES:
            libraries.setdefault(name, str(distribution.version))
    return dict(sorted(ours.items())), dict(sorted(libraries.items()))


def _name_of(distribution: Any) -> str:
    return str(distribution.metadata["Name"] or "").lower().replace("_", "-")


def _declares_plugin(distribution: Any) -> bool:
    return any(entry.group == "voicehub.plugin_api" for entry in distribution.entry_points)


def core_mismatches() -> dict[str, str]:
    """Distributions whose declared requirement on the core the installed core does not meet."""
    from importlib_metadata import PackageNotFoundError, distributions, version
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        core = version(CORE)
    except PackageNotFoundError:
        return {}
    found: dict[str, str] = {}
    for distribution in distributions():
        for text in distribution.requires or ():
            if not text.lower().replace("_", "-").startswith(CORE):
                continue
            try:
                requirement = Requirement(text)
            except InvalidRequirement:
                continue
            if not requirement.specifier.contains(core, prereleases=True):
                found[_name_of(distribution)] = f"needs {requirement}, but {core} is installed"
    return found


def foreign_voicehub() -> str:
    """Why ``import voicehub`` is not, or may not stay, ours; an empty text when all is well.

    The published single-package distribution ``voicehub`` installs the same import name: the two
    overwrite each other's files.
    """
    from importlib_metadata import distributions

    import voicehub

    imported = Path(str(voicehub.__file__)).resolve()
    core: Any = None
    for distribution in distributions():
        name = _name_of(distribution)
        if name == CORE and core is None:
            core = distribution
        if name == SINGLE_PACKAGE and _ships_voicehub(distribution):
            return (
                f"the distribution 'voicehub' {distribution.version} installs the same import "
                f"name; 'import voicehub' is {imported}. Remove it and restore ours: "
                f"`pip uninstall voicehub && pip install --force-reinstall --no-deps {CORE}`"
            )
    if core is None:
        return f"{CORE} is not installed; 'import voicehub' is {imported}"
    if not _owns(core, imported):
        return (
            f"'import voicehub' is {imported}, which does not belong to the installed {CORE} "
            f"{core.version}. Another package or a folder on the path hides it."
        )
    return ""


def _ships_voicehub(distribution: Any) -> bool:
    record = distribution.read_text("RECORD")  # rows of path, hash, size
    if record is not None:
        paths = (row.split(",", 1)[0].strip('"') for row in record.splitlines())
        return "voicehub/__init__.py" in paths
    top_level = distribution.read_text("top_level.txt") or ""
    return "voicehub" in top_level.split()


def _owns(core: Any, imported: Path) -> bool:
    source = _editable_source(core)
    if source is not None:
        return imported.is_relative_to(source)
    installed = Path(str(core.locate_file("voicehub/__init__.py")))
    return installed.resolve() == imported


def _editable_source(distribution: Any) -> Path | None:
    """The source folder of an editable installation (PEP 610)."""
    text = distribution.read_text("direct_url.json")
    if not text:
        return None
    record = json.loads(text)
    if not record.get("dir_info", {}).get("editable"):
        return None
    return Path(unquote(urlparse(record["url"]).path)).resolve()
