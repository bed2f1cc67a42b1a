"""The stochastic duration predictor: its likelihood bound, and its samples."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from voicehub_vits.network.splines import rational_quadratic

_LOG_TWO_PI = math.log(2.0 * math.pi)


def stochastic_nll(
    predictor: Any,
    hidden: Tensor,
    mask: Tensor,
    durations: Tensor,
    noise: Tensor,
    conditioning: Tensor | None = None,
) -> Tensor:
    """Upper bound on ``-log p(durations | text)`` (Kim et al. 2021, eq. 7), by utterance.

    Durations are dequantised by ``u`` in (0, 1) and joined by ``v``, both drawn by the posterior
    flow from ``noise``. Text and conditioning are taken as constants, as published.

    Args:
        predictor: ``VitsStochasticDurationPredictor``.
        hidden: text encoder output, float (B, C, tokens).
        mask: float (B, 1, tokens).
        durations: frames of each token, float (B, 1, tokens).
        noise: standard normal, float (B, 2, tokens).
        conditioning: speaker embeddings (B, size, 1).

    Returns:
        float (B,): sums over the utterance's tokens.
    """
    context = _context(predictor, hidden, mask, conditioning)
    told = predictor.post_conv_pre(durations)
    told = predictor.post_conv_dds(told, mask)
    told = predictor.post_conv_proj(told) * mask
    noise = noise * mask
    latents, posterior = _flow(predictor.post_flows, noise, mask, context + told)
    u, v = latents[:, :1], latents[:, 1:]
    squashed = functional.logsigmoid(u) + functional.logsigmoid(-u)
    posterior = posterior + (squashed * mask).sum((1, 2))
    log_q = (-0.5 * (_LOG_TWO_PI + noise.square()) * mask).sum((1, 2)) - posterior
    left = (durations - torch.sigmoid(u)) * mask
    logs = left.clamp(min=1e-5).log() * mask
    latents, prior = _flow(predictor.flows, torch.cat([logs, v], dim=1), mask, context)
    prior = prior - logs.sum((1, 2))
    nll = (0.5 * (_LOG_TWO_PI + latents.square()) * mask).sum((1, 2)) - prior
    total: Tensor = nll + log_q
    return total


def stochastic_sample(
    predictor: Any,
    hidden: Tensor,
    mask: Tensor,
    noise: Tensor,
    conditioning: Tensor | None = None,
) -> Tensor:
    """Log-durations (B, 1, tokens) that the flow makes of ``noise`` (B, 2, tokens)."""
    context = _context(predictor, hidden, mask, conditioning)
    flows = list(reversed(predictor.flows))
    latents = noise
    # The flow before the last sees only v and is left out, as in synthesis.
    for flow in [*flows[:-2], flows[-1]]:
        latents, _ = flow(latents.flip(1), mask, global_conditioning=context, reverse=True)
    return latents[:, :1]


def _context(predictor: Any, hidden: Tensor, mask: Tensor, conditioning: Tensor | None) -> Tensor:
    context = predictor.conv_pre(hidden.detach())
    if conditioning is not None:
        context = context + predictor.cond(conditioning.detach())
    context = predictor.conv_dds(context, mask)
    result: Tensor = predictor.conv_proj(context) * mask
    return result


def _flow(flows: Any, latents: Tensor, mask: Tensor, conditioning: Tensor) -> tuple[Tensor, Tensor]:
    """Run a chain forward, flipping the two channels after each; returns its log-determinant."""
    affine, *couplings = flows
    latents = (affine.translate + affine.log_scale.exp() * latents) * mask
    total = (affine.log_scale * mask).sum((1, 2))
    latents = latents.flip(1)
    for flow in couplings:
        latents, log_determinant = _couple(flow, latents, mask, conditioning)
        total = total + log_determinant
        latents = latents.flip(1)
    return latents, total


def _couple(
    flow: Any, latents: Tensor, mask: Tensor, conditioning: Tensor
) -> tuple[Tensor, Tensor]:
    """One ``VitsConvFlow``: the second channel through a spline that the first one shapes."""
    half, bins = flow.half_channels, flow.num_bins
    kept, moved = latents[:, :half], latents[:, half:]
    shape = flow.conv_dds(flow.conv_pre(kept), mask, conditioning)
    shape = flow.conv_proj(shape) * mask
    batch, _, tokens = shape.shape
    shape = shape.view(batch, half, 3 * bins - 1, tokens).permute(0, 1, 3, 2)
    scale = 1.0 / math.sqrt(flow.filter_channels)
    moved, logs = rational_quadratic(
        moved,
        shape[..., :bins] * scale,
        shape[..., bins : 2 * bins] * scale,
        shape[..., 2 * bins :],
        bound=flow.tail_bound,
    )
    joined = torch.cat([kept, moved], dim=1) * mask
    return joined, (logs * mask).sum((1, 2))
