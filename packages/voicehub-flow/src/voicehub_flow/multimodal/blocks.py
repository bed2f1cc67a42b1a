"""The blocks: joint attention over latents, video and text, then latents alone."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from voicehub_flow.multimodal.layers import (
    GatedFeedForward,
    Modulation,
    StepConv,
    attention,
    inner_width,
    masked,
    modulated,
)
from voicehub_flow.multimodal.positions import rotate


class BlockSizes(NamedTuple):
    """Sizes that all blocks share."""

    heads: int
    head_dim: int
    mlp_ratio: float
    mlp_multiple: int

    @property
    def width(self) -> int:
        """Channels of a stream."""
        return self.heads * self.head_dim


class StreamBlock(nn.Module):
    """One stream's half before and after attention.

    Args:
        sizes: of the block.
        kernel: of output map and feed-forward; 1 where steps have no neighbours.
        before_only: the stream ends here: it is attended to, asks nothing and goes no further.
    """

    def __init__(self, sizes: BlockSizes, kernel: int, *, before_only: bool = False) -> None:
        super().__init__()
        width = sizes.width
        self.heads, self.head_dim, self.before_only = sizes.heads, sizes.head_dim, before_only
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.qkv = nn.Linear(width, (2 if before_only else 3) * width)
        nn.init.xavier_uniform_(self.qkv.weight)
        nn.init.zeros_(self.qkv.bias)
        if not before_only:
            self.query_norm = nn.RMSNorm(sizes.head_dim, eps=1e-6)
        self.key_norm = nn.RMSNorm(sizes.head_dim, eps=1e-6)
        self.modulation = Modulation(width, 2 if before_only else 6)
        if not before_only:
            inner = inner_width(width, sizes.mlp_ratio, sizes.mlp_multiple)
            self.out = StepConv(width, width, kernel)
            self.feed_norm = nn.LayerNorm(width, elementwise_affine=False)
            self.feed = GatedFeedForward(width, inner, kernel)

    def before(
        self, steps: Tensor, parts: tuple[Tensor, ...], turned: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value (batch, heads, steps, head_dim), turned by position.

        A stream that ends here has no step that asks.
        """
        mixed = self.qkv(modulated(self.norm(steps), parts[0], parts[1]))
        shape = (*mixed.shape[:2], -1, self.heads, self.head_dim)
        *queries, key, value = mixed.reshape(shape).permute(2, 0, 3, 1, 4)
        query = self.query_norm(queries[0]) if queries else value[:, :, :0]
        key = self.key_norm(key)
        if turned is not None:
            key = rotate(key, turned)
            query = rotate(query, turned) if queries else query
        return query, key, value

    def after(
        self, steps: Tensor, attended: Tensor, parts: tuple[Tensor, ...], mask: Tensor | None
    ) -> Tensor:
        """The stream behind attention and feed-forward, each let in by its gate."""
        _, _, gate, shift, scale, feed_gate = parts
        steps = steps + gate * self.out(attended, mask)
        fed = self.feed(modulated(self.feed_norm(steps), shift, scale), mask)
        found: Tensor = steps + feed_gate * fed
        return found


class Streams(NamedTuple):
    """Latents, video and text, (batch, steps, width) each."""

    latent: Tensor
    clip: Tensor
    text: Tensor


class JointBlock(nn.Module):
    """Every stream with weights of its own, one attention over all their steps.

    Args:
        sizes: of the block.
        last: of the joint blocks: what follows sees the latents alone.
    """

    def __init__(self, sizes: BlockSizes, *, last: bool) -> None:
        super().__init__()
        self.head_dim = sizes.head_dim
        self.latent = StreamBlock(sizes, kernel=3)
        self.clip = StreamBlock(sizes, kernel=3, before_only=last)
        self.text = StreamBlock(sizes, kernel=1, before_only=last)

    def forward(
        self,
        streams: Streams,
        frame_condition: Tensor,
        condition: Tensor,
        turned: tuple[Tensor, Tensor],
        mask: Tensor | None,
    ) -> Streams:
        """The streams behind the block.

        Args:
            streams: before it.
            frame_condition: (batch, frames, width), aligned with the latents.
            condition: (batch, 1, width), of the whole clip.
            turned: rotations of latents and video.
            mask: bool (batch, frames), valid latents; None where all are.
        """
        blocks = (self.latent, self.clip, self.text)
        parts = [
            block.modulation(given)
            for block, given in zip(blocks, (frame_condition, condition, condition), strict=True)
        ]
        heads = [
            block.before(steps, part, turn)
            for block, steps, part, turn in zip(
                blocks, streams, parts, (*turned, None), strict=True
            )
        ]
        query, key, value = (torch.cat(kind, dim=2) for kind in zip(*heads, strict=True))
        attended = attention(query, key, value, _joined_mask(streams, mask), self.head_dim)
        pieces = torch.split(attended, [asked.shape[2] for asked, _, _ in heads], dim=1)
        masks = (mask, None, None)
        return Streams(
            *(
                steps if block.before_only else block.after(steps, piece, part, own)
                for block, steps, piece, part, own in zip(
                    blocks, streams, pieces, parts, masks, strict=True
                )
            )
        )


class LatentBlock(nn.Module):
    """A block over the latents alone."""

    def __init__(self, sizes: BlockSizes) -> None:
        super().__init__()
        self.head_dim = sizes.head_dim
        self.latent = StreamBlock(sizes, kernel=3)

    def forward(
        self, latent: Tensor, frame_condition: Tensor, turned: Tensor, mask: Tensor | None
    ) -> Tensor:
        """(batch, frames, width)."""
        parts = self.latent.modulation(frame_condition)
        query, key, value = self.latent.before(latent, parts, turned)
        attended = attention(query, key, value, mask, self.head_dim)
        return self.latent.after(latent, attended, parts, mask)


class FinalLayer(nn.Module):
    """The latents' velocity; its map starts at zero.

    Args:
        width: of the stream.
        channels: of the latents.
    """

    def __init__(self, width: int, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.modulation = Modulation(width, 2)
        self.out = nn.Conv1d(width, channels, 7, padding=3)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)  # type: ignore[arg-type]

    def forward(self, latent: Tensor, frame_condition: Tensor, mask: Tensor | None) -> Tensor:
        """(batch, frames, channels)."""
        shift, scale = self.modulation(frame_condition)
        steps = masked(modulated(self.norm(latent), shift, scale), mask)
        found: Tensor = self.out(steps.transpose(1, 2)).transpose(1, 2)
        return found


def _joined_mask(streams: Streams, mask: Tensor | None) -> Tensor | None:
    """Valid steps of all streams; only latents are ever padded."""
    if mask is None:
        return None
    others = sum(steps.shape[1] for steps in streams[1:])
    return torch.cat((mask, mask.new_ones(mask.shape[0], others)), dim=1)
