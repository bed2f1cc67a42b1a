"""``config.json`` of a checkpoint, before transformers makes a class of it."""

from __future__ import annotations

import json
from typing import Any

from voicehub.errors import CheckpointError


def read_config_dict(source: str, **fetch: Any) -> dict[str, Any]:
    """Return what a checkpoint says of itself, so that a wrong type is refused by name.

    Args:
        source: Local directory or Hub id.
        fetch: How the Hub is asked: ``revision``, ``local_files_only``.

    Raises:
        CheckpointError: Nothing is there, or it is no JSON.
    """
    from transformers import PreTrainedConfig

    try:
        found: dict[str, Any]
        found, _ = PreTrainedConfig.get_config_dict(source, **fetch)
        if not found:
            raise FileNotFoundError("there is no such file.")
    except (OSError, json.JSONDecodeError) as error:
        raise CheckpointError(
            f"Cannot read config.json of '{source}', neither as a local directory nor from the "
            f"Hugging Face Hub: {error}"
        ) from error
    return found
