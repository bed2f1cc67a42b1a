"""From token ids to a vector for every frame."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from voicehub_flow.config import F5Architecture
from voicehub_flow.tts.network.positions import place_sinusoids

#: Row of the text embedding that stands where there is no token, or none to be seen.
FILLER = 0
_CONV_MULT = 2
_KERNEL = 7


class GlobalResponseNorm(nn.Module):
    """Channels that respond more than others over the utterance, stressed (Woo et al. 2023)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.zeros(1, 1, channels))
        self.beta = nn.Parameter(torch.zeros(1, 1, channels))

    def forward(self, values: Tensor, padding: Tensor) -> Tensor:
        """Normalise over the valid frames of (batch, frames, channels)."""
        response = values.masked_fill(padding, 0.0).square().sum(1, keepdim=True)
        # The root has no slope at 0, which a channel of exact zeros would meet.
        response = response.clamp(min=torch.finfo(values.dtype).tiny).sqrt()
        relative = response / (response.mean(dim=-1, keepdim=True) + 1e-6)
        return self.gamma * (values * relative) + self.beta + values


class TextBlock(nn.Module):
    """A ConvNeXt V2 block."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        inner = dim * _CONV_MULT
        self.dwconv = nn.Conv1d(dim, dim, _KERNEL, padding=_KERNEL // 2, groups=dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.pwconv1 = nn.Linear(dim, inner)
        self.grn = GlobalResponseNorm(inner)
        self.pwconv2 = nn.Linear(inner, dim)

    def forward(self, values: Tensor, padding: Tensor) -> Tensor:
        """Apply it to (batch, frames, dim), whose padding is zero."""
        mixed = self.dwconv(values.transpose(1, 2)).transpose(1, 2)
        mixed = functional.gelu(self.pwconv1(self.norm(mixed)))
        result: Tensor = values + self.pwconv2(self.grn(mixed, padding))
        return result


class TextEmbedding(nn.Module):
    """Tokens laid out over the frames, embedded, and mixed with their neighbours.

    Args:
        rows: of the embedding: the filler and every symbol.
        sizes: of the network.
    """

    def __init__(self, rows: int, sizes: F5Architecture) -> None:
        super().__init__()
        self.layout, self.mask_padding = sizes.text_layout, sizes.mask_text_padding
        self.text_embed = nn.Embedding(rows, sizes.text_dim)
        if sizes.conv_layers:
            blocks = [TextBlock(sizes.text_dim) for _ in range(sizes.conv_layers)]
            self.text_blocks = nn.ModuleList(blocks)
        self.has_blocks = sizes.conv_layers > 0

    def forward(
        self, ids: Tensor, text_lengths: Tensor, frame_lengths: Tensor, frames: int, drop: Tensor
    ) -> Tensor:
        """Return (batch, frames, text_dim), 0 behind the frames of an item.

        Args:
            ids: int64 (batch, tokens), padded with the filler.
            text_lengths, frame_lengths: int64 (batch,).
            frames: of the batch.
            drop: bool (batch,), whose text is not seen.
        """
        laid, absent = lay_out(ids, text_lengths, frame_lengths, frames, self.layout)
        padding = torch.arange(frames, device=ids.device) >= frame_lengths[:, None]
        hidden = (padding | absent if self.mask_padding else padding)[..., None]
        padding = padding[..., None]
        values: Tensor = self.text_embed(laid.masked_fill(drop[:, None], FILLER))
        if not self.has_blocks:
            return values.masked_fill(padding, 0.0)
        values = values + place_sinusoids(frames, values.shape[-1], values)
        values = values.masked_fill(hidden, 0.0)
        for block in self.text_blocks:
            values = block(values, padding).masked_fill(hidden, 0.0)
        return values


def lay_out(
    ids: Tensor, text_lengths: Tensor, frame_lengths: Tensor, frames: int, layout: str
) -> tuple[Tensor, Tensor]:
    """Put a token, or the filler, on every frame.

    Returns:
        int64 (batch, frames), and bool (batch, frames), true where no token stands.
    """
    places = torch.arange(frames, device=ids.device)[None]
    tokens = text_lengths[:, None]
    if layout == "spread":
        chosen = places * tokens // frame_lengths[:, None].clamp(min=1)
        absent = places >= frame_lengths[:, None]
    else:
        chosen = places.expand(len(ids), -1)
        absent = (places >= tokens) | (places >= frame_lengths[:, None])
    laid = ids.gather(1, chosen.clamp(max=ids.shape[1] - 1))
    return laid.masked_fill(absent, FILLER), absent
