"""The model wrappers of this family."""

from __future__ import annotations

from voicehub_asr_ctc.log_mel_model import LogMelCTC
from voicehub_asr_ctc.pretrained_model import TransformersCTC

__all__ = ["LogMelCTC", "TransformersCTC"]
