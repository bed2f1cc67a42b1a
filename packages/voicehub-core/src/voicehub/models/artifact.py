"""The portable artifact of a model: a directory whose root ``config.json`` is ours.

Layout: ``config.json`` (below), ``training_recipe.json``, the family's own files, and, apart
from them, ``native_export/``, whose ``config.json`` belongs to another library.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from voicehub.errors import ConfigurationError

CONFIG_FILE = "config.json"
RECIPE_FILE = "training_recipe.json"
FORMAT_KEY = "voicehub_format"
FORMAT_VERSION = 1
#: Where a run directory holds the artifact that the run ended with.
FINAL_MODEL = "final-model"


@dataclass(frozen=True)
class Artifact:
    """What the root ``config.json`` says.

    Attributes:
        directory: Where it lies.
        model_type: Type of the model.
        family: Its family.
        model: The family's configuration.
    """

    directory: Path
    model_type: str
    family: str
    model: dict[str, Any]


def write_artifact_config(
    directory: Path, *, model_type: str, family: str, model: Mapping[str, Any]
) -> Path:
    """Write the root ``config.json`` of an artifact and return its path."""
    directory.mkdir(parents=True, exist_ok=True)
    document = {
        FORMAT_KEY: FORMAT_VERSION,
        "model_type": model_type,
        "family": family,
        "model": dict(model),
    }
    path = directory / CONFIG_FILE
    path.write_text(json.dumps(document, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    return path


def read_config(directory: Path) -> dict[str, Any]:
    """Return the ``config.json`` of a model directory, ours or another library's.

    Raises:
        ConfigurationError: missing, unreadable, or not a JSON object.
    """
    path = directory / CONFIG_FILE
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except NotADirectoryError:
        raise ConfigurationError(f"{directory} is a file; expected a model directory.") from None
    except FileNotFoundError:
        raise ConfigurationError(
            f"{directory} holds no {CONFIG_FILE}, so it is no model directory."
        ) from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(document, dict):
        raise ConfigurationError(
            f"{path} must hold a JSON object, found {type(document).__name__}."
        )
    return document


def artifact_directory(path: str | Path) -> Path:
    """The directory of a run stands for the model it ended with; any other path for itself."""
    path = Path(path).expanduser()
    inside = path / FINAL_MODEL
    return inside if inside.is_dir() else path


def is_artifact(directory: Path) -> bool:
    """Whether a directory holds a portable artifact of ours."""
    return (directory / CONFIG_FILE).is_file() and FORMAT_KEY in read_config(directory)


def read_artifact(directory: str | Path, model_type: str | None = None) -> Artifact:
    """Read a portable artifact.

    Args:
        directory: Where it lies.
        model_type: Type that it must have; None takes any.

    Raises:
        ConfigurationError: not an artifact, of a newer format, of another type, or damaged.
    """
    directory = Path(directory)
    document = read_config(directory)
    version = document.get(FORMAT_KEY)
    if version is None:
        raise ConfigurationError(
            f"{directory / CONFIG_FILE} is not a VoiceHub artifact: it has no {FORMAT_KEY!r}."
        )
    if not isinstance(version, int) or not 1 <= version <= FORMAT_VERSION:
        raise ConfigurationError(
            f"{directory / CONFIG_FILE} has format {version!r}; this VoiceHub reads up to "
            f"{FORMAT_VERSION}. Update voicehub-core."
        )
    for key, kind in (("model_type", str), ("family", str), ("model", dict)):
        if not isinstance(document.get(key), kind):
            raise ConfigurationError(
                f"{directory / CONFIG_FILE}: {key!r} must be a {kind.__name__}, "
                f"found {document.get(key)!r}."
            )
    found = Artifact(directory, document["model_type"], document["family"], document["model"])
    if model_type is not None and found.model_type != model_type:
        raise ConfigurationError(f"{directory} holds a {found.model_type!r}, not a {model_type!r}.")
    return found
