"""Classifier-free guidance of a velocity (Ho and Salimans 2022)."""

from __future__ import annotations

from torch import Tensor


def guided(v_cond: Tensor, v_null: Tensor, guidance_scale: float) -> Tensor:
    """Return ``g v_cond + (1 - g) v_null``.

    g = 1 is the conditional velocity and g = 0 the null one, bit for bit. F5-TTS writes
    ``v_cond + c (v_cond - v_null)``: its strength is c = g - 1.

    Args:
        v_cond, v_null: of one shape.
        guidance_scale: g.
    """
    if guidance_scale == 1:
        return v_cond
    if guidance_scale == 0:
        return v_null
    return v_null + guidance_scale * (v_cond - v_null)
