"""From audio to a model's input, utterance by utterance, with exact frame counts."""

from __future__ import annotations

from voicehub_asr_ctc.front_ends.base import FrontEnd, Prepared
from voicehub_asr_ctc.front_ends.log_mel import LogMelFrontEnd
from voicehub_asr_ctc.front_ends.pretrained import PretrainedFrontEnd

__all__ = ["FrontEnd", "LogMelFrontEnd", "Prepared", "PretrainedFrontEnd"]
