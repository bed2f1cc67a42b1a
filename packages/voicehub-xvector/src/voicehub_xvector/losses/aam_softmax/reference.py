"""The definition of the loss, as loops over Python floats."""

from __future__ import annotations

import math
from collections.abc import Sequence


def cosine(left: Sequence[float], right: Sequence[float]) -> float:
    """Cosine of two vectors; 0 where one of them is zero."""
    norms = math.sqrt(math.fsum(x * x for x in left)) * math.sqrt(math.fsum(x * x for x in right))
    if norms == 0.0:
        return 0.0
    return max(-1.0, min(1.0, math.fsum(x * y for x, y in zip(left, right, strict=True)) / norms))


def with_margin(value: float, margin: float, angular: bool) -> float:
    """Cosine of the right speaker, made harder.

    Angular (Deng et al. 2019): cos(t + m) for t < pi - m, where it falls with t; from there on
    cos t - m sin m, which goes on falling.
    """
    if not angular:
        return value - margin
    if value > math.cos(math.pi - margin):
        return math.cos(math.acos(value) + margin)
    return value - margin * math.sin(margin)


def with_penalty(value: float, margin: float, angular: bool) -> float:
    """Cosine of a near wrong speaker, made nearer (Zhao et al. 2021).

    Angular: cos(t - m'); below t = m', where that would turn, 1 + cos t - cos m'.
    """
    if not angular:
        return value + margin
    if value >= math.cos(margin):
        return 1.0 + value - math.cos(margin)
    return math.cos(math.acos(value) - margin)


def aam_softmax_reference(
    embedding: Sequence[float],
    prototypes: Sequence[Sequence[Sequence[float]]],
    label: int,
    *,
    scale: float,
    margin: float,
    angular: bool = True,
    inter_top_k: int = 0,
    inter_margin: float = 0.0,
) -> float:
    """Loss of one embedding.

    Args:
        embedding: (D,).
        prototypes: (C, K, D): K sub-centres of each class.
        label: class in [0, C).
        scale, margin, inter_top_k, inter_margin: as in
            :class:`~voicehub_xvector.loss_config.LossConfig`.
        angular: margins are angles (``aam``), else cosines (``am``).
    """
    cosines = [max(cosine(embedding, centre) for centre in centres) for centres in prototypes]
    wrong = sorted((c for c in range(len(cosines)) if c != label), key=lambda c: -cosines[c])
    logits = list(cosines)
    logits[label] = with_margin(cosines[label], margin, angular)
    for c in wrong[:inter_top_k]:
        logits[c] = with_penalty(cosines[c], inter_margin, angular)
    scaled = [scale * value for value in logits]
    highest = max(scaled)
    return highest + math.log(math.fsum(math.exp(x - highest) for x in scaled)) - scaled[label]
