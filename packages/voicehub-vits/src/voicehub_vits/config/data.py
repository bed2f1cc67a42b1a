"""The data section."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from voicehub_data.config import BatchConfig, SplitsConfig
from voicehub_data.config.names import NormalizerName


class VitsDataConfig(SplitsConfig):
    """Data of a VITS run; where rows come from is in the base.

    Attributes:
        text_normalizer: applied to texts before they become tokens: none, basic, english, ....
        trim_silence: cut silence at both ends of a clip.
        trim_threshold_db: what is this many dB below the loudest frame counts as silence.
        trim_margin: seconds of silence that stay.
        loudness: RMS of the speech in dBFS that clips are brought to; None leaves them.
        speaker_ids: row of the speaker table by speaker name; by default in the order of the
            sorted names.
        batches: see ``voicehub_data.config``.
        eval_batch_size: utterances of an evaluation batch.
        unusable: what to do with training rows that cannot be trained on (no known symbol, shorter
            than a segment, more tokens than frames): ``error``, or ``drop`` (counted).
        max_unknown_fraction: stop when more than this share of the symbols has no token.
        cache_directory: prepared audio and spectrograms are kept here, named by the hash of what
            they were made of; None keeps none on disk.
        cache_megabytes: of them in memory, per process.
    """

    text_normalizer: NormalizerName = "none"
    trim_silence: bool = True
    trim_threshold_db: float = Field(default=40.0, gt=0)
    trim_margin: float = Field(default=0.05, ge=0)
    loudness: float | None = Field(default=-23.0, lt=0)
    speaker_ids: dict[str, int] = Field(default_factory=dict)
    batches: BatchConfig = Field(default_factory=BatchConfig)
    eval_batch_size: int = Field(default=8, ge=1)
    unusable: Literal["error", "drop"] = "error"
    max_unknown_fraction: float = Field(default=0.02, ge=0, le=1)
    cache_directory: str | None = None
    cache_megabytes: int = Field(default=512, ge=0)
