"""What every head is: a trunk over frames, a pooling, an embedding layer."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from voicehub_xvector.pooling import Pooling


class Trunk(nn.Module):
    """Takes (B, T, F) and lengths (B,), returns frames (B, C, T') and their lengths.

    Attributes:
        output_size: C.
    """

    output_size: int

    def forward(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Run the trunk."""
        raise NotImplementedError


class Head(nn.Module):
    """Takes (B, T, F) and valid frames (B,), returns embeddings (B, ``embedding_size``).

    Class attributes:
        padding_sensitive: what an utterance becomes depends on the padding behind it, so that
            utterances of unequal length must not share a forward.
        embedding_path: of the embedding layer, from the head.

    Attributes:
        embedding_size: D.
        without_trunk_grad: the forward keeps a graph of the embedding layer alone.
    """

    padding_sensitive: ClassVar[bool] = False
    embedding_path: ClassVar[str] = "embedding"
    embedding_size: int
    without_trunk_grad: bool = False

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Return the embeddings."""
        raise NotImplementedError


class PooledHead(Head):
    """A head of ours.

    Args:
        trunk: over frames.
        pooling: over its output.
        embedding_size: D.
        dropout: before the embedding layer.
    """

    def __init__(
        self, trunk: Trunk, pooling: Pooling, embedding_size: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.embedding_size = embedding_size
        self.trunk = trunk
        self.pooling = pooling
        self.dropout = nn.Dropout(dropout)
        self.embedding = nn.Linear(pooling.output_size, embedding_size)

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        if self.without_trunk_grad:
            with torch.no_grad():
                pooled = self._pooled(features, lengths)
        else:
            pooled = self._pooled(features, lengths)
        embedded: Tensor = self.embedding(self.dropout(pooled))
        return embedded

    def _pooled(self, features: Tensor, lengths: Tensor) -> Tensor:
        frames, frame_lengths = self.trunk(features, lengths)
        pooled: Tensor = self.pooling(frames, frame_lengths)
        return pooled


def strided(lengths: Any, stride: int) -> Any:
    """Frames that a convolution with so many steps and half its kernel as padding gives."""
    return (lengths - 1) // stride + 1 if stride > 1 else lengths
