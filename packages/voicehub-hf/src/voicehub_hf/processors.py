"""Joining feature extractors and tokenizers of transformers."""

from __future__ import annotations

from typing import Any

from voicehub_hf.encoders import ctc_encoder


def build_processor(model_type: str, feature_extractor: Any, tokenizer: Any) -> Any:
    """Join a feature extractor and a tokenizer in the processor class of a model type."""
    import transformers

    return getattr(transformers, ctc_encoder(model_type).processor_class)(
        feature_extractor=feature_extractor, tokenizer=tokenizer
    )
