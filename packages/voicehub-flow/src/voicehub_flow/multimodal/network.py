"""The multimodal transformer: velocity of latents, given video, synchronisation and text.

The topology is that of MMAudio (Cheng et al. 2025): joint-attention blocks over latents, video and
text, then blocks over the latents alone. The time and a summary of video and text modulate every
block; synchronisation features, aligned frame by frame, are added to what modulates the latents.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from voicehub_flow.multimodal.blocks import (
    BlockSizes,
    FinalLayer,
    JointBlock,
    LatentBlock,
    Streams,
)
from voicehub_flow.multimodal.layers import GatedFeedForward, InputProjection, inner_width
from voicehub_flow.multimodal.positions import TimeEmbedding, rotations
from voicehub_flow.store.config import MultimodalArchitecture
from voicehub_flow.store.shapes import FeatureShapes


class Conditions(NamedTuple):
    """Conditions of a batch in the network's terms.

    Attributes:
        clip, text: streams (batch, steps, width).
        sync: (batch, sync frames, width).
        summary: (batch, width), of video and text.
    """

    clip: Tensor
    text: Tensor
    sync: Tensor
    summary: Tensor


class MultimodalTransformer(nn.Module):
    """The network in memory.

    Args:
        sizes: of the network.
        shapes: of the features.

    Attributes:
        latent_mean, latent_std: (channels,), buffers: latents are normalised with them.
        null_text: (tokens, channels), a buffer: features of the empty text.
        null_clip, null_sync: (channels,), parameters that start at zero.
    """

    latent_mean: Tensor
    latent_std: Tensor
    null_text: Tensor

    def __init__(self, sizes: MultimodalArchitecture, shapes: FeatureShapes) -> None:
        super().__init__()
        self.sizes, self.shapes = sizes, shapes
        width = sizes.width
        inner = inner_width(width, 4.0, sizes.mlp_multiple)
        self.latent_in = InputProjection(shapes.latent_dim, width, inner, (7, 7), activation=True)
        self.clip_in = InputProjection(shapes.clip_dim, width, inner, (1, 3), activation=False)
        self.sync_in = InputProjection(shapes.sync_dim, width, inner, (7, 3), activation=True)
        self.text_in = InputProjection(shapes.text_dim, width, inner, (1, 1), activation=False)
        self.clip_summary = nn.Linear(width, width)
        self.text_summary = nn.Linear(width, width)
        for linear in (self.clip_summary, self.text_summary):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)
        self.summary = GatedFeedForward(width, inner)
        self.sync_place = nn.Embedding(sizes.sync_segment, shapes.sync_dim)
        nn.init.zeros_(self.sync_place.weight)
        self.time = TimeEmbedding(width)
        block = BlockSizes(sizes.num_heads, sizes.head_dim, sizes.mlp_ratio, sizes.mlp_multiple)
        joint = sizes.depth - sizes.fused_depth
        self.joint = nn.ModuleList(
            JointBlock(block, last=number == joint - 1) for number in range(joint)
        )
        self.fused = nn.ModuleList(LatentBlock(block) for _ in range(sizes.fused_depth))
        self.final = FinalLayer(width, shapes.latent_dim)
        self.null_clip = nn.Parameter(torch.zeros(shapes.clip_dim))
        self.null_sync = nn.Parameter(torch.zeros(shapes.sync_dim))
        self.register_buffer("null_text", torch.zeros(shapes.text_tokens, shapes.text_dim))
        self.register_buffer("latent_mean", torch.zeros(shapes.latent_dim))
        self.register_buffer("latent_std", torch.ones(shapes.latent_dim))

    # -- latents -------------------------------------------------------------------------------

    def normalize(self, latents: Tensor) -> Tensor:
        """Latents of the store as the network sees them."""
        return (latents - self.latent_mean) / self.latent_std

    def unnormalize(self, latents: Tensor) -> Tensor:
        """The inverse of ``normalize``."""
        return latents * self.latent_std + self.latent_mean

    # -- conditions ----------------------------------------------------------------------------

    def conditions(self, features: Mapping[str, Tensor]) -> Conditions:
        """Read features once; they do not depend on time.

        Args:
            features: ``text, clip, sync`` (batch, steps, channels), and bool (batch,) ``no_text,
                no_clip, no_sync``, true where the null condition stands in.
        """
        clip = _replaced(features["clip"], features["no_clip"], self.null_clip)
        sync = _replaced(features["sync"], features["no_sync"], self.null_sync)
        text = _replaced(features["text"], features["no_text"], self.null_text)
        place = torch.arange(sync.shape[1], device=sync.device) % self.sizes.sync_segment
        clip_steps = self.clip_in(clip)
        text_steps = self.text_in(text)
        summary = self.clip_summary(clip_steps.mean(1)) + self.text_summary(text_steps.mean(1))
        return Conditions(
            clip_steps,
            text_steps,
            self.sync_in(sync + self.sync_place(place)),
            self.summary(summary[:, None])[:, 0],
        )

    def forward(
        self, latents: Tensor, time: Tensor, conditions: Conditions, mask: Tensor | None = None
    ) -> Tensor:
        """Velocity (batch, frames, channels) of normalised latents on their way.

        Args:
            latents: (batch, frames, channels).
            time: (batch,), in [0, 1].
            conditions: of ``conditions``.
            mask: bool (batch, frames), valid frames; None where all are.
        """
        if mask is not None:
            latents = latents.masked_fill(~mask[..., None], 0.0)
        steps = self.latent_in(latents, mask)
        whole = (self.time(time) + conditions.summary)[:, None]
        framed = whole + conditions.sync[:, self._sync_of(latents, conditions.sync.shape[1])]
        turned = self._rotations(latents.shape[1], conditions.clip.shape[1], steps)
        streams = Streams(steps, conditions.clip, conditions.text)
        for block in self.joint:
            streams = block(streams, framed, whole, turned, mask)
        steps = streams.latent
        for block in self.fused:
            steps = block(steps, framed, turned[0], mask)
        velocity: Tensor = self.final(steps, framed, mask)
        return velocity

    def _sync_of(self, latents: Tensor, given: int) -> Tensor:
        """The synchronisation frame of every latent frame: that at its middle, int64 (frames,)."""
        shapes = self.shapes
        frames = torch.arange(latents.shape[1], device=latents.device)
        ratio = shapes.sync_frames / shapes.latent_frames
        return ((frames + 0.5) * ratio).long().clamp(max=given - 1)

    def _rotations(self, frames: int, clip_steps: int, like: Tensor) -> tuple[Tensor, Tensor]:
        ratio = self.shapes.latent_frames / self.shapes.clip_frames
        head_dim = self.sizes.head_dim
        return (
            rotations(frames, head_dim, 1.0, like),
            rotations(clip_steps, head_dim, ratio, like),
        )


def _replaced(features: Tensor, absent: Tensor, null: Tensor) -> Tensor:
    """Features of a batch, the null condition where they are absent."""
    return torch.where(absent[:, None, None], null.to(features.dtype), features)
