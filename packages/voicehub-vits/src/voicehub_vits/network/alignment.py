"""Scores of the alignment search: the exact Gaussian log-likelihood of frames under tokens."""

from __future__ import annotations

import math

import torch
from torch import Tensor


@torch.no_grad()
def gaussian_scores(latents: Tensor, means: Tensor, log_deviations: Tensor) -> Tensor:
    """``log N(z_j; m_i, s_i)`` of every token i and frame j (Kim et al. 2021, section 2.2.1).

    Args:
        latents: frames through the flow, float (B, D, frames).
        means, log_deviations: of the prior, float (B, D, tokens).

    Returns:
        float (B, tokens, frames), in float32 at least, without gradient.
    """
    with torch.autocast(latents.device.type, enabled=False):
        wide = torch.float64 if latents.dtype == torch.float64 else torch.float32
        z, m, logs = latents.to(wide), means.to(wide), log_deviations.to(wide)
        precision = (-2.0 * logs).exp()
        constant = (-0.5 * math.log(2.0 * math.pi) - logs - 0.5 * m.square() * precision).sum(1)
        # Frames first in memory: the layout in which the search reads.
        quadratic = z.square().transpose(1, 2) @ (-0.5 * precision)
        cross = z.transpose(1, 2) @ (m * precision)
        return (quadratic + cross + constant[:, None]).transpose(1, 2)
