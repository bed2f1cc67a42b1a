"""Weights of a checkpoint in a class of transformers, and what of the class they leave open."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from voicehub.errors import CheckpointError, CheckpointMismatchError

_SHOWN = 5


def load_weights(
    model_class: Any,
    source: str,
    config: Any,
    *,
    dtype: Any,
    ignore_mismatched_sizes: bool = True,
    **fetch: Any,
) -> tuple[Any, set[str]]:
    """Load safetensors into a model; nothing is unpickled.

    Args:
        model_class: Of transformers.
        source: Local directory or Hub id.
        config: Of the model.
        dtype: How weights are stored.
        ignore_mismatched_sizes: Draw weights of another size anew; refuse them otherwise.
        fetch: How the Hub is asked: ``revision``, ``local_files_only``.

    Returns:
        The model, and the names of the weights that were drawn and not loaded.

    Raises:
        CheckpointError: The weights cannot be read.
    """
    try:
        model, info = model_class.from_pretrained(
            source,
            config=config,
            dtype=dtype,
            use_safetensors=True,
            ignore_mismatched_sizes=ignore_mismatched_sizes,
            output_loading_info=True,
            **fetch,
        )
    except OSError as error:
        raise CheckpointError(f"Cannot load weights of {source}: {error}") from error
    drawn = {str(key) for key in info["missing_keys"]}
    drawn |= {str(entry[0]) for entry in info["mismatched_keys"]}
    return model, drawn


def require_nothing_drawn(source: str, architecture: str, drawn: Iterable[str]) -> None:
    """Refuse a checkpoint that leaves weights open which must be its own.

    Raises:
        CheckpointMismatchError: There are some; the message names them.
    """
    names = sorted(drawn)
    if names:
        raise CheckpointMismatchError(
            f"{source} lacks {len(names)} weights of {architecture}, or holds them in another "
            f"shape: {', '.join(names[:_SHOWN])}{', ...' if names[_SHOWN:] else ''}."
        )
