"""Extractors by name; the module of one is imported when it is asked for."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from voicehub.errors import ConfigurationError, DataError
from voicehub.suggest import did_you_mean
from voicehub_flow.features.base import SETTINGS_FILE, Extractor, Kind

#: By kind and name, ``module:function``: ``function(directory, settings)`` builds one; a directory
#: is what the user names, settings are its options.
_HERE = "voicehub_flow.features"
BUILT_IN: dict[Kind, dict[str, str]] = {
    "audio": {
        "log-mel-pca": f"{_HERE}.mel_pca:build",
        "encodec": f"{_HERE}.pretrained_audio:build_encodec",
        "dac": f"{_HERE}.pretrained_audio:build_dac",
    },
    "text": {
        "hashed": f"{_HERE}.hashed_text:build",
        "text-encoder": f"{_HERE}.pretrained_text:build",
        "clip-text": f"{_HERE}.pretrained_text:build_clip",
    },
    "clip": {
        "frame-grid": f"{_HERE}.frame_grids:build_frames",
        "clip-vision": f"{_HERE}.pretrained_video:build",
    },
    "sync": {
        "motion-grid": f"{_HERE}.frame_grids:build_motion",
        "clip-vision": f"{_HERE}.pretrained_video:build",
    },
}
Build = Callable[[Path | None, Mapping[str, Any]], Extractor]
_registered: dict[tuple[Kind, str], Build] = {}


def register_extractor(kind: Kind, name: str, build: Build, *, exist_ok: bool = False) -> None:
    """Make an extractor available by name in this process.

    Args:
        kind: of features.
        name: of the extractor.
        build: ``build(directory, settings)``.
        exist_ok: replace one that was registered before.

    Raises:
        ConfigurationError: the name is taken.
    """
    if name in BUILT_IN[kind] or ((kind, name) in _registered and not exist_ok):
        raise ConfigurationError(f"an extractor of {kind} named {name!r} exists already.")
    _registered[kind, name] = build


def extractor_names(kind: Kind) -> list[str]:
    """Names that ``build_extractor`` knows."""
    return [*BUILT_IN[kind], *(name for found, name in _registered if found == kind)]


def build_extractor(
    kind: Kind, name: str, directory: Path | None, settings: Mapping[str, Any]
) -> Extractor:
    """Build an extractor by name.

    Args:
        kind: of features.
        name: of the extractor.
        directory: what it reads; None for one that needs none.
        settings: its options.

    Raises:
        ConfigurationError: no such name, or the extractor refuses directory or settings.
    """
    if (kind, name) in _registered:
        return _registered[kind, name](directory, settings)
    reference = BUILT_IN[kind].get(name)
    if reference is None:
        known = extractor_names(kind)
        raise ConfigurationError(
            f"unknown extractor of {kind} {name!r}; expected one of {', '.join(known)}."
            f"{did_you_mean(name, known)}"
        )
    module, _, function = reference.partition(":")
    built: Extractor = getattr(importlib.import_module(module), function)(directory, settings)
    return built


def store_extractor(extractor: Extractor, directory: Path) -> dict[str, Any]:
    """What a store or an artifact keeps of an extractor: its identity, and where it is found.

    Built-in ones are written to the directory, whose last part becomes the place; of pretrained
    ones their own directory is named.
    """
    saved = extractor.save(directory)
    place = directory.name if saved else str(Path(extractor.source).resolve())
    return {
        "identity": extractor.identity(),
        "saved": saved,
        "place": place,
        "options": dict(extractor.options),
    }


def stored_extractor(kind: Kind, kept: Mapping[str, Any], beside: Path) -> Extractor:
    """The extractor that ``store_extractor`` kept.

    Args:
        kind: of features.
        kept: what it returned.
        beside: directory that saved ones lie in.

    Raises:
        ConfigurationError: it is not there any more.
        DataError: it is another one.
    """
    identity = kept["identity"]
    directory = beside / kept["place"] if kept["saved"] else Path(kept["place"])
    if not directory.is_dir():
        raise ConfigurationError(
            f"the {kind} extractor {identity['name']!r} lay in {directory}, which is not there. "
            "Bring it back."
        )
    found = build_extractor(kind, identity["name"], directory, kept["options"])
    require_identity(found, identity, str(beside))
    return found


def require_identity(found: Extractor, expected: Mapping[str, Any], where: str) -> None:
    """Refuse an extractor that gives other features.

    Raises:
        DataError: says what differs.
    """
    own = found.identity()
    if own["sha256"] == expected["sha256"]:
        return
    apart = [
        f"{key} {expected.get(key)!r} became {value!r}"
        for key, value in own.items()
        if key != "sha256" and expected.get(key) != value
    ]
    raise DataError(
        f"{where} was made with the extractor {expected['name']!r} of SHA-256 "
        f"{expected['sha256'][:16]}…, but {found.source} is {own['sha256'][:16]}… "
        f"({'; '.join(apart) or 'other weights'}): its features would mean something else."
    )


def read_settings(directory: Path, name: str) -> dict[str, Any]:
    """The settings that an extractor saved beside its weights.

    Raises:
        ConfigurationError: the directory holds none, or those of another extractor.
    """
    path = directory / SETTINGS_FILE
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigurationError(
            f"{directory}: holds no {SETTINGS_FILE}, so it is no extractor {name!r}."
        ) from None
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path}: cannot be read as JSON ({error}).") from error
    if not isinstance(document, dict) or document.get("name") != name:
        raise ConfigurationError(f"{path}: not the settings of an extractor {name!r}.")
    return dict(document["settings"])


def write_settings(directory: Path, name: str, settings: Mapping[str, Any]) -> None:
    """Write what ``read_settings`` reads."""
    directory.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"name": name, "settings": dict(settings)}, indent=2)
    (directory / SETTINGS_FILE).write_text(text + "\n", encoding="utf-8")
