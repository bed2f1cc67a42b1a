"""What the extractors over models of transformers share: a local directory, frozen, hashed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch

from voicehub.errors import CheckpointError, ConfigurationError
from voicehub_hf.identity import checkpoint_identity


def require_directory(name: str, directory: Path | None) -> Path:
    """The directory of a pretrained extractor; nothing is ever fetched.

    Raises:
        ConfigurationError: none was named, or it is not there.
    """
    if directory is None:
        raise ConfigurationError(
            f"the extractor {name!r} reads a model of transformers: name its directory, "
            f"{name}=DIRECTORY."
        )
    if not directory.is_dir():
        raise ConfigurationError(
            f"the extractor {name!r}: {directory} is no directory. Extractors read local models "
            "alone; fetch the model first."
        )
    return directory


def load_frozen(model_class: Any, directory: Path, **options: Any) -> Any:
    """A model of transformers from a local directory, in evaluation mode, without gradients.

    Raises:
        CheckpointError: it cannot be read.
    """
    from voicehub_hf.processors import progress_bars

    try:
        with progress_bars(shown=False):
            model = model_class.from_pretrained(
                str(directory),
                dtype=torch.float32,
                use_safetensors=True,
                local_files_only=True,
                **options,
            )
    except (OSError, ValueError, RuntimeError) as error:
        raise CheckpointError(
            f"{directory}: cannot be read as {model_class.__name__} ({error})."
        ) from error
    model.requires_grad_(False)
    return model.eval()


def digest_of_model(directory: str, config: Any) -> str:
    """SHA-256 (hex) of a local model's configuration and weights."""
    found = checkpoint_identity(directory, config)
    found.pop("source")
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()
