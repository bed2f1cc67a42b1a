"""The CTC loss."""

from __future__ import annotations

from voicehub_asr_ctc.losses.ctc import CTCLoss, ctc_loss

__all__ = ["CTCLoss", "ctc_loss"]
