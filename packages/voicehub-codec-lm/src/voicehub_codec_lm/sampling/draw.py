"""From logits to codes."""

from __future__ import annotations

import torch
from torch import Tensor

from voicehub_codec_lm.sampling.settings import SamplingSettings


def draw(
    logits: Tensor,
    settings: SamplingSettings,
    generator: torch.Generator,
    recent: Tensor | None = None,
) -> Tensor:
    """Draw one code a row.

    Args:
        logits: floating (rows, vocabulary); minus infinity where a code cannot be.
        settings: how.
        generator: on the CPU; consumed equally, one number a row, whatever the logits are.
        recent: int64 (rows, n), codes drawn lately, for the repetition penalty.

    Returns:
        int64 (rows,).
    """
    scores = penalised(logits.float(), recent, settings.repetition_penalty)
    numbers = torch.rand(len(scores), 1, generator=generator).to(scores.device)
    if settings.temperature == 0:
        return scores.argmax(-1)
    kept = nucleus(top_k(scores / settings.temperature, settings.top_k), settings.top_p)
    chances = kept.double().softmax(-1)
    # Inverse of the distribution function, so that one number decides a row.
    reached = chances.cumsum(-1)
    place = (reached < numbers.double() * reached[:, -1:]).sum(-1)
    # Rounding may point behind the last code that has a chance.
    last = chances.shape[-1] - 1 - (chances > 0).flip(-1).long().argmax(-1)
    return torch.minimum(place, last)


def penalised(logits: Tensor, recent: Tensor | None, penalty: float) -> Tensor:
    """Move the logits of recent codes down: positive ones divided, negative ones multiplied."""
    if recent is None or penalty == 1.0 or not recent.shape[1]:
        return logits
    own = logits.gather(1, recent)
    return logits.scatter(1, recent, torch.where(own > 0, own / penalty, own * penalty))


def top_k(logits: Tensor, count: int | None) -> Tensor:
    """Minus infinity below the ``count`` highest of each row."""
    if count is None or count >= logits.shape[-1]:
        return logits
    lowest = logits.topk(count, -1).values[:, -1:]
    return logits.masked_fill(logits < lowest, -torch.inf)


def nucleus(logits: Tensor, share: float) -> Tensor:
    """Minus infinity behind the most likely codes that together have ``share``."""
    if share >= 1.0:
        return logits
    ordered, places = logits.sort(-1, descending=True)
    before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
    cut = ordered.masked_fill(before >= share, -torch.inf)
    return torch.full_like(logits, -torch.inf).scatter(-1, places, cut)


def guided(conditioned: Tensor, null: Tensor, scale: float) -> Tensor:
    """Classifier-free guidance (Ho and Salimans 2022) on logits."""
    return null + scale * (conditioned - null)
