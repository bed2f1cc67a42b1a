"""Margins on cosines, and their derivatives."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def with_margin(cosine: Tensor, margin: float, angular: bool) -> Tensor:
    """The right speaker's cosine, made harder; ``reference.with_margin`` for tensors."""
    if not angular:
        return cosine - margin
    inside = cosine * math.cos(margin) - _sine(cosine) * math.sin(margin)
    outside = cosine - margin * math.sin(margin)
    return torch.where(cosine > math.cos(math.pi - margin), inside, outside)


def margin_slope(cosine: Tensor, margin: float, angular: bool) -> Tensor:
    """Derivative of :func:`with_margin` by the cosine.

    It has a pole at cosine 1; there it is bounded, since the gradient of the embedding, which is
    this times sin t, has none.
    """
    if not angular:
        return torch.ones_like(cosine)
    inside = math.cos(margin) + math.sin(margin) * cosine / _bounded_sine(cosine)
    inner = cosine > math.cos(math.pi - margin)
    return torch.where(inner, inside, torch.ones_like(cosine))


def with_penalty(cosine: Tensor, margin: float, angular: bool) -> Tensor:
    """A near wrong speaker's cosine, made nearer; ``reference.with_penalty`` for tensors."""
    if not angular:
        return cosine + margin
    apart = cosine * math.cos(margin) + _sine(cosine) * math.sin(margin)
    return torch.where(cosine >= math.cos(margin), 1.0 + cosine - math.cos(margin), apart)


def penalty_slope(cosine: Tensor, margin: float, angular: bool) -> Tensor:
    """Derivative of :func:`with_penalty` by the cosine."""
    if not angular:
        return torch.ones_like(cosine)
    apart = math.cos(margin) - math.sin(margin) * cosine / _bounded_sine(cosine)
    return torch.where(cosine >= math.cos(margin), torch.ones_like(cosine), apart)


def _sine(cosine: Tensor) -> Tensor:
    return (1.0 - cosine.square()).clamp_min(0.0).sqrt()


def _bounded_sine(cosine: Tensor) -> Tensor:
    return _sine(cosine).clamp_min(torch.finfo(cosine.dtype).eps ** 0.5)
