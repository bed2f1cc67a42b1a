"""The wrong classes that lie nearest, found chunk by chunk."""

from __future__ import annotations

import torch
from torch import Tensor

from voicehub_xvector.losses.aam_softmax.chunks import Chunk


class NearestClasses:
    """The k wrong classes that are nearest to each embedding so far.

    Args:
        batch: B.
        count: k.
        classes: C, which stands for "none yet".
        like: for dtype and device.

    Attributes:
        cosines: (B, k).
        classes: int64 (B, k).
    """

    def __init__(self, batch: int, count: int, classes: int, like: Tensor) -> None:
        self.count = count
        self.cosines = like.new_full((batch, count), -torch.inf)
        self.classes = torch.full((batch, count), classes, dtype=torch.int64, device=like.device)

    def take(self, chunk: Chunk) -> Tensor:
        """Let the classes of a chunk compete; return the cosines of all that lost, -inf among."""
        if not self.count:
            return chunk.cosines
        everyone = torch.cat([self.cosines, chunk.cosines], 1)
        values, positions = everyone.topk(self.count, 1)
        held = self.classes.gather(1, positions.clamp_max(self.count - 1))
        new = positions - self.count + chunk.first
        self.classes = torch.where(positions < self.count, held, new)
        self.cosines = values
        return everyone.scatter_(1, positions, -torch.inf)
