"""The data section."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from voicehub_asr_llm.config.sources import SourcesConfig
from voicehub_data.config import AugmentConfig, BatchConfig


class AsrLlmDataConfig(SourcesConfig):
    """Data of a run; what it shares with other readers of the sources is in the base.

    Attributes:
        augment, batches: see ``voicehub_data.config``.
        packing: ``rows`` joins utterances in rows of at most ``pack_tokens``, where none sees
            another; ``batch`` puts a whole batch into one row, which ``flash_attention_2`` needs;
            ``none`` pads; ``auto`` packs where the decoder can.
        pack_tokens: most tokens of a row with several utterances.
        max_tokens: longer utterances, prompt and transcript included, are dropped and counted.
        eval_padded_seconds: cap on padded seconds of an evaluation batch.
        cache_megabytes: decoded audio and features kept in memory, per process.
    """

    augment: AugmentConfig = Field(default_factory=AugmentConfig)
    batches: BatchConfig = Field(default_factory=BatchConfig)
    packing: Literal["auto", "none", "rows", "batch"] = "auto"
    pack_tokens: int = Field(default=2048, ge=2)
    max_tokens: int = Field(default=4096, ge=2)
    eval_padded_seconds: float = Field(default=120.0, gt=0)
    cache_megabytes: int = Field(default=512, ge=0)
