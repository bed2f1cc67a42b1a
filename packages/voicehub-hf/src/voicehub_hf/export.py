"""Directories that plain transformers loads: writing them, and reading checkpoints back."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from torch import nn

from voicehub.errors import CheckpointError, ConfigurationError
from voicehub_hf.encoders import ctc_encoder, unwrapped
from voicehub_hf.loading import LoadedCTC, load_checkpoint, load_ctc
from voicehub_hf.lora import merge_lora
from voicehub_hf.processors import build_processor, progress_bars

__all__ = ["LoadedCTC", "build_processor", "export_ctc", "load_checkpoint", "load_ctc"]


def export_ctc(
    model: nn.Module, processor_or_parts: Any, directory: str | Path, *, dtype: Any = None
) -> Path:
    """Write weights, config and processor to ``directory``.

    It then loads with ``AutoModelForCTC``, ``AutoProcessor`` and
    ``pipeline("automatic-speech-recognition", model=directory)``, without VoiceHub. The model is
    not changed: adapters are merged in a copy.

    Args:
        model: One of the five CTC models, also with adapters.
        processor_or_parts: Its processor, or (feature extractor, tokenizer).
        directory: Created where missing.
        dtype: Data type of the weights on disk; the model's own by default.

    Raises:
        ConfigurationError: The tokenizer does not fit the model: another size, or a padding
            token that is not the model's blank.
        CheckpointError: The directory cannot be written.
    """
    encoder = ctc_encoder(model)
    processor = processor_or_parts
    if isinstance(processor_or_parts, tuple):
        processor = build_processor(encoder.model_type, *processor_or_parts)
    _check_tokenizer(unwrapped(model).config, processor.tokenizer)
    if hasattr(model, "merge_and_unload"):
        model = merge_lora(copy.deepcopy(model))
    if dtype is not None:
        model = copy.deepcopy(model).to(dtype)
    target = Path(directory)
    try:
        target.mkdir(parents=True, exist_ok=True)
        with progress_bars(shown=False):
            model.save_pretrained(target)  # type: ignore[operator]
            processor.save_pretrained(target)
    except OSError as error:
        raise CheckpointError(f"Cannot write the export to {target}: {error}") from error
    return target


def _check_tokenizer(config: Any, tokenizer: Any) -> None:
    vocabulary = tokenizer.get_vocab()
    ids = set(vocabulary.values())
    unnamed = sorted(set(range(config.vocab_size)) - ids)
    # Sentence marks behind the vocabulary are common in published checkpoints and harmless.
    special = set(tokenizer.all_special_tokens)
    strays = sorted(
        token
        for token, index in vocabulary.items()
        if index >= config.vocab_size and token not in special
    )
    if unnamed or strays:
        problem = f"has no token for output {unnamed[0]}" if unnamed else f"adds '{strays[0]}'"
        raise ConfigurationError(
            f"The tokenizer ({len(ids)} tokens) does not fit the model ({config.vocab_size} "
            f"outputs): it {problem}. Export with the tokenizer that the model was trained with."
        )
    if tokenizer.pad_token_id != config.pad_token_id:
        raise ConfigurationError(
            f"The tokenizer's padding token '{tokenizer.pad_token}' has id "
            f"{tokenizer.pad_token_id}, the model's blank is {config.pad_token_id}; decoders of "
            "transformers take the padding token for the blank, so they must be the same."
        )
