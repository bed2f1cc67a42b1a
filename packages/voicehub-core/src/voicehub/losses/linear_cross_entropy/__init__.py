"""Cross-entropy of linear heads without their logits."""

from __future__ import annotations

from voicehub.losses.linear_cross_entropy.ops import (
    IGNORED,
    LinearCrossEntropy,
    linear_cross_entropy,
)

__all__ = ["IGNORED", "LinearCrossEntropy", "linear_cross_entropy"]
