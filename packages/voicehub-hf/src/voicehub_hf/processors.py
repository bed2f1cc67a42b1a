"""Joining feature extractors and tokenizers of transformers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from voicehub_hf.encoders import ctc_encoder


def build_processor(model_type: str, feature_extractor: Any, tokenizer: Any) -> Any:
    """Join a feature extractor and a tokenizer in the processor class of a model type."""
    import transformers

    return getattr(transformers, ctc_encoder(model_type).processor_class)(
        feature_extractor=feature_extractor, tokenizer=tokenizer
    )


@contextmanager
def progress_bars(*, shown: bool) -> Iterator[None]:
    """Show or hide the progress bars of transformers; they would break a live display."""
    from transformers.utils import logging as transformers_logging

    logging: Any = transformers_logging
    if shown or not logging.is_progress_bar_enabled():
        yield
        return
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.enable_progress_bar()
