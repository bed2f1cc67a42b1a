"""From conditions to latents: guidance, and the way from noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from voicehub.data.keyed_random import torch_generator
from voicehub.errors import ConfigurationError
from voicehub.models.modes import eval_mode
from voicehub_flow.multimodal.network import MultimodalTransformer
from voicehub_flow.solvers import guided, integrate
from voicehub_flow.store.config import GenerationConfig


@dataclass(frozen=True)
class GenerationConditions:
    """Features of a batch; None where a modality is absent.

    Attributes:
        text: (samples, tokens, channels).
        clip, sync: (samples, steps, channels); of a video both.
    """

    text: Tensor | None = None
    clip: Tensor | None = None
    sync: Tensor | None = None


def generate_latents(
    network: MultimodalTransformer,
    conditions: GenerationConditions,
    frames: int,
    settings: GenerationConfig,
    seeds: Sequence[int],
) -> Tensor:
    """Draw latents, float32 (seeds, frames, channels) on the CPU, not normalised.

    Args:
        network: whose modes are left as they are.
        conditions: of one sample, or of as many as there are seeds.
        frames: of the latents.
        settings: guidance and solver.
        seeds: one for each sample.

    Raises:
        ConfigurationError: conditions and seeds are of different number, or of a wrong shape.
    """
    if frames < 1 or not seeds:
        raise ConfigurationError(f"{frames} frames of {len(seeds)} seeds: nothing to generate.")
    features = _features(network, conditions, len(seeds))
    noise = torch.stack(
        [
            torch.randn(
                frames, network.shapes.latent_dim, generator=torch_generator("flow.sample", seed)
            )
            for seed in seeds
        ]
    ).to(network.latent_mean)
    with eval_mode(network), torch.no_grad():
        latents = integrate(
            _velocity(network, features, settings.guidance_scale, len(seeds)),
            noise,
            method=settings.method,
            steps=settings.steps,
        )
        found: Tensor = network.unnormalize(latents).float().cpu()
    return found


def _velocity(  # type: ignore[no-untyped-def]
    network: MultimodalTransformer, features: dict[str, Tensor], guidance_scale: float, count: int
):
    given = network.conditions(features)
    everything = torch.ones(count, dtype=torch.bool, device=network.latent_mean.device)
    absent = dict.fromkeys(("no_text", "no_clip", "no_sync"), everything)
    null = None if guidance_scale == 1 else network.conditions({**features, **absent})

    def velocity(time: Tensor, latents: Tensor) -> Tensor:
        times = time.expand(count)
        conditional: Tensor = network(latents, times, given)
        if null is None:
            return conditional
        return guided(conditional, network(latents, times, null), guidance_scale)

    return velocity


def _features(
    network: MultimodalTransformer, conditions: GenerationConditions, count: int
) -> dict[str, Tensor]:
    shapes, like = network.shapes, network.latent_mean
    if (conditions.clip is None) != (conditions.sync is None):
        raise ConfigurationError("a video has clip and sync features: give both, or neither.")
    sizes = {
        "text": (shapes.text_tokens, shapes.text_dim),
        "clip": (shapes.clip_frames, shapes.clip_dim),
        "sync": (shapes.sync_frames, shapes.sync_dim),
    }
    features: dict[str, Tensor] = {}
    for name, (steps, channels) in sizes.items():
        found: Tensor | None = getattr(conditions, name)
        absent = found is None
        if found is None:
            found = torch.zeros(1, steps, channels)
        # Longer videos than in training are allowed, other texts and channels are not.
        wrong = found.dim() != 3 or found.shape[2] != channels
        if wrong or (name == "text" and found.shape[1] != steps):
            raise ConfigurationError(
                f"{name} features {list(found.shape)}; expected (samples, {steps}, {channels})."
            )
        if found.shape[0] not in (1, count):
            raise ConfigurationError(
                f"{name} features of {found.shape[0]} samples, and {count} seeds; expected as many."
            )
        features[name] = found.to(like).expand(count, -1, -1)
        features[f"no_{name}"] = torch.full((count,), absent, device=like.device)
    return features
