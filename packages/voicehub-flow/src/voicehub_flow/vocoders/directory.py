"""What a vocoder's directory holds: a configuration and weights, neither of which runs code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from voicehub.checkpoints.manifest import hash_file
from voicehub.errors import CheckpointCorruptError, ConfigurationError
from voicehub.models.tensor_files import require_same_tensors

#: Names of weights as published, the first that is there; globs.
_WEIGHTS = (
    "*.safetensors",
    "pytorch_model.bin",
    "bigvgan_generator.pt",
    "generator_v*",
    "g_*",
    "*.pt",
    "*.pth",
    "*.ckpt",
)


def require_directory(path: str, name: str) -> Path:
    """The directory of a vocoder.

    Raises:
        ConfigurationError: there is none.
    """
    directory = Path(path).expanduser()
    if not directory.is_dir():
        raise ConfigurationError(
            f"vocoder.path: {path} is no directory. The vocoder {name!r} is read from one that "
            "holds its configuration and its weights."
        )
    return directory


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object.

    Raises:
        ConfigurationError: missing, unreadable, or no object.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigurationError(f"vocoder.path: {path} is missing.") from None
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path} cannot be read as JSON: {error}.") from error
    if not isinstance(document, dict):
        raise ConfigurationError(f"{path} must hold an object, found {type(document).__name__}.")
    return document


def setting(config: Mapping[str, Any], key: str, path: Path) -> Any:
    """A setting that must be there.

    Raises:
        ConfigurationError: it is not.
    """
    if key not in config:
        raise ConfigurationError(f"{path} says no {key!r}: it is no configuration of that vocoder.")
    return config[key]


def find_weights(directory: Path) -> Path:
    """The file of weights: safetensors where there are some.

    Raises:
        ConfigurationError: there is none.
    """
    for pattern in _WEIGHTS:
        found = sorted(path for path in directory.glob(pattern) if path.is_file())
        if found:
            return found[-1]  # g_00100000 before g_02500000
    raise ConfigurationError(
        f"{directory} holds no weights of a vocoder: one of {', '.join(_WEIGHTS)}."
    )


def read_weights(path: Path) -> dict[str, Tensor]:
    """Tensors by name; weight norm is multiplied out. Nothing is unpickled.

    Raises:
        CheckpointCorruptError: the file is damaged, or carries code.
    """
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return without_weight_norm(load_file(path))
        except SafetensorError as error:
            raise CheckpointCorruptError(f"{path} is damaged: {error}.") from error
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise CheckpointCorruptError(
            f"{path} holds more than weights, or is damaged ({type(error).__name__}). Convert it "
            "to safetensors where you trust it."
        ) from error
    for key in ("generator", "state_dict", "model"):  # as their trainers wrap them
        if isinstance(loaded, dict) and isinstance(loaded.get(key), dict):
            loaded = loaded[key]
    if not isinstance(loaded, dict):
        raise CheckpointCorruptError(f"{path} holds no tensors by name.")
    return without_weight_norm({k: v for k, v in loaded.items() if isinstance(v, Tensor)})


def without_weight_norm(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Multiply magnitude and direction out: w = g v / ||v||, over all but the first dimension.

    Both spellings of torch: ``weight_g, weight_v``, and ``parametrizations.weight.original0, 1``.
    """
    spellings = (
        ("weight_g", "weight_v"),
        ("parametrizations.weight.original0", "parametrizations.weight.original1"),
    )
    plain = dict(state)
    for magnitude, direction in spellings:
        for name in [name for name in plain if f".{name}".endswith(f".{magnitude}")]:
            stem = name.removesuffix(magnitude)
            g, v = plain.pop(name), plain.pop(stem + direction)
            norm = v.flatten(1).norm(dim=1).view(-1, *[1] * (v.dim() - 1))
            plain[f"{stem}weight"] = v * (g / norm)
    return plain


def load_into(module: nn.Module, state: Mapping[str, Tensor], path: Path) -> nn.Module:
    """Load weights whole, and leave the module in eval mode without gradients.

    Raises:
        CheckpointMismatchError: names or shapes differ.
    """
    require_same_tensors(module.state_dict(), state, path)
    module.load_state_dict(dict(state))
    return module.eval().requires_grad_(False)


def describe_file(path: Path) -> dict[str, Any]:
    """Path and digest, for manifests."""
    return {"path": str(path.parent), "file": path.name, "sha256": hash_file(path).sha256}


def stated(
    found: Mapping[str, Any], given: Mapping[str, Any], directory: Path, names: tuple[str, ...]
) -> dict[str, Any]:
    """What a directory says of its mel frames, with what the settings add.

    Raises:
        ConfigurationError: the settings name what is no mel setting, or contradict the directory.
    """
    from voicehub.suggest import did_you_mean

    known = dict(found)
    for name, value in given.items():
        if name not in names:
            raise ConfigurationError(
                f"vocoder.mel: unknown key {name!r}.{did_you_mean(name, names)}"
            )
        if name in known and known[name] != value:
            raise ConfigurationError(
                f"vocoder.mel.{name} is {value!r}, but {directory} says {known[name]!r}."
            )
        known[name] = value
    return known
