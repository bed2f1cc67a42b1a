"""The velocity of mel frames: a diffusion transformer (Peebles and Xie 2023) given text."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from voicehub_flow.config import F5Architecture
from voicehub_flow.tts.network.blocks import Block, ConvPositions, Modulation, TimeEmbedding, normed
from voicehub_flow.tts.network.positions import rotations
from voicehub_flow.tts.network.text import TextEmbedding

#: Row of the speaker table for a speaker who is not seen.
NOBODY = 0


class InputEmbedding(nn.Module):
    """Noisy frames, context and text of a frame to one vector."""

    def __init__(self, channels: int, sizes: F5Architecture) -> None:
        super().__init__()
        self.proj = nn.Linear(2 * channels + sizes.text_dim, sizes.dim)
        self.conv_pos_embed = ConvPositions(sizes.dim, sizes.conv_kernel, sizes.conv_groups)

    def forward(self, noisy: Tensor, context: Tensor, text: Tensor, padding: Tensor) -> Tensor:
        """Return (batch, frames, dim)."""
        frames: Tensor = self.proj(torch.cat((noisy, context, text), dim=-1))
        positions: Tensor = self.conv_pos_embed(frames, padding)
        return positions + frames


class DiT(nn.Module):
    """Predicts ``d x_t / d t``.

    Parameter names are those of published F5-TTS checkpoints below ``ema_model.transformer``;
    ``speaker_embed`` is ours, and is absent where there are no speakers.

    Args:
        sizes: of the network.
        channels: mel bins.
        symbols: of the vocabulary.
        speakers: that are told apart; 0 conditions on none.
        dropout: rate in attention and feed-forward outputs.
    """

    def __init__(
        self,
        sizes: F5Architecture,
        *,
        channels: int,
        symbols: int,
        speakers: int = 0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.sizes, self.channels = sizes, channels
        self.time_embed = TimeEmbedding(sizes.dim)
        self.text_embed = TextEmbedding(symbols + 1, sizes)
        self.input_embed = InputEmbedding(channels, sizes)
        self.speaker_embed = nn.Embedding(speakers + 1, sizes.dim) if speakers else None
        inner = int(sizes.dim * sizes.ff_mult)
        self.transformer_blocks = nn.ModuleList(
            Block(sizes.dim, sizes.heads, inner, sizes.rotary_heads, dropout)
            for _ in range(sizes.depth)
        )
        self.norm_out = Modulation(sizes.dim, 2)
        self.proj_out = nn.Linear(sizes.dim, channels)
        nn.init.zeros_(self.proj_out.weight)
        nn.init.zeros_(self.proj_out.bias)

    def forward(
        self,
        noisy: Tensor,
        context: Tensor,
        time: Tensor,
        ids: Tensor,
        text_lengths: Tensor,
        frame_lengths: Tensor,
        *,
        drop_audio: Tensor,
        drop_text: Tensor,
        speakers: Tensor | None = None,
    ) -> Tensor:
        """Return velocities (batch, frames, channels); what stands behind an item is meaningless.

        Args:
            noisy: x_t, (batch, frames, channels); its padding may hold anything.
            context: the frames that are known, 0 where they are to be filled in.
            time: (batch,).
            ids: int64 (batch, tokens), padded with 0.
            text_lengths, frame_lengths: int64 (batch,).
            drop_audio, drop_text: bool (batch,), whose context and whose text and speaker are not
                seen.
            speakers: int64 (batch,), rows of the speaker table; None knows of none.
        """
        frames = noisy.shape[1]
        padding = (torch.arange(frames, device=noisy.device) >= frame_lengths[:, None])[..., None]
        noisy = noisy.masked_fill(padding, 0.0)
        context = context.masked_fill(padding | drop_audio[:, None, None], 0.0)
        text = self.text_embed(ids, text_lengths, frame_lengths, frames, drop_text)
        condition = self.time_embed(time)
        if self.speaker_embed is not None and speakers is not None:
            condition = condition + self.speaker_embed(speakers.masked_fill(drop_text, NOBODY))
        values = self.input_embed(noisy, context, text, padding)
        turns = rotations(frames, self.sizes.dim // self.sizes.heads, values)
        seen = ~padding.squeeze(-1)[:, None, None]
        for block in self.transformer_blocks:
            values = block(values, condition, seen, turns)
        scale, shift = self.norm_out(condition)
        velocity: Tensor = self.proj_out(normed(values, shift, scale))
        return velocity
