"""The speaker classification loss and the prototypes that it owns."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from voicehub.errors import ConfigurationError, DataError
from voicehub_xvector.loss_config import LossConfig
from voicehub_xvector.losses.aam_softmax import aam_softmax

_MOST_PAIRS = 1 << 27
"""Cells of the largest matrix of class distances: half a gigabyte of float32."""


class MarginSoftmax(nn.Module):
    """Cross-entropy over scaled cosines between embeddings and class prototypes.

    Attributes:
        weight: parameter (C * K, D), of any length; sub-centre k of class c in row c * K + k.
        num_classes: C.
    """

    def __init__(self, config: LossConfig, embedding_size: int, num_classes: int) -> None:
        """Draw prototypes from the process's generator, of length about 1.

        Raises:
            ConfigurationError: fewer than one class, or an embedding size below 1.
        """
        super().__init__()
        if num_classes < 1 or embedding_size < 1:
            raise ConfigurationError(
                f"A speaker loss needs classes and an embedding size; got {num_classes} classes "
                f"and size {embedding_size}."
            )
        self.config = config
        self.num_classes = num_classes
        rows = num_classes * config.sub_centres
        self.weight = nn.Parameter(torch.empty(rows, embedding_size))
        nn.init.normal_(self.weight, std=1.0 / math.sqrt(embedding_size))

    def forward(
        self, embeddings: Tensor, labels: Tensor, *, margin_scale: float = 1.0
    ) -> tuple[Tensor, int]:
        """Sum of the losses and how many items are in it.

        Args:
            embeddings: floating (B, D), of any length.
            labels: int64 (B,), classes.
            margin_scale: share of the margins that counts, in [0, 1]; see ``schedule``.

        Raises:
            DataError: shapes do not fit, or a label is no class.
        """
        config = self.config
        losses = aam_softmax(
            embeddings,
            self.weight,
            labels,
            scale=config.scale,
            margin=0.0 if config.kind == "softmax" else config.margin * margin_scale,
            angular=config.kind == "aam",
            sub_centres=config.sub_centres,
            inter_top_k=config.inter_top_k,
            inter_margin=config.inter_top_k_margin * margin_scale,
            class_chunk=config.class_chunk,
        )
        return losses.sum(), len(labels)

    @torch.no_grad()
    def cosines(self, embeddings: Tensor) -> Tensor:
        """Cosine of each embedding with the nearest sub-centre of each class: (B, C), float32.

        For few classes: the matrix is made in full.
        """
        units = functional.normalize(embeddings.float(), dim=1)
        every = units @ functional.normalize(self.weight.float(), dim=1).t()
        return every.view(len(units), self.num_classes, -1).amax(2)

    @torch.no_grad()
    def nearest_classes(self, classes: Tensor, count: int, *, chunk: int = 1024) -> Tensor:
        """The other classes whose prototypes lie nearest, nearest first: int64 (N, count).

        Memory grows with ``chunk * C``, not with C squared.

        Args:
            classes: int64 (N,).
            count: at most C - 1.
        """
        if not 0 <= count < self.num_classes:
            raise DataError(f"{count} nearest classes wanted of {self.num_classes - 1} others.")
        found = [torch.empty(0, count, dtype=torch.int64, device=self.weight.device)]
        for part in classes.to(self.weight.device).split(chunk):
            cosines = self._class_cosines(part)
            cosines.scatter_(1, part.unsqueeze(1), -torch.inf)
            found.append(cosines.topk(count, 1).indices)
        return torch.cat(found)

    @torch.no_grad()
    def prototype_distances(self) -> Tensor:
        """1 - cosine of the nearest sub-centres of each two classes: (C, C), float32, 0 at home.

        Raises:
            DataError: the matrix would not fit; ``nearest_classes`` needs no matrix.
        """
        if self.num_classes**2 > _MOST_PAIRS:
            raise DataError(
                f"Distances between {self.num_classes} classes need a matrix of "
                f"{self.num_classes**2 * 4 / 1e9:.1f} GB; use nearest_classes instead."
            )
        everyone = torch.arange(self.num_classes, device=self.weight.device)
        return (1.0 - self._class_cosines(everyone)).clamp_min_(0.0).fill_diagonal_(0.0)

    def _class_cosines(self, classes: Tensor) -> Tensor:
        units = functional.normalize(self.weight.float(), dim=1)
        by_class = units.view(self.num_classes, self.config.sub_centres, -1)
        best = units.new_full((len(classes), self.num_classes), -torch.inf)
        for left in range(self.config.sub_centres):
            for right in range(self.config.sub_centres):
                cosines = by_class[classes, left] @ by_class[:, right].t()
                torch.maximum(best, cosines, out=best)
        return best


def build_loss(config: LossConfig, embedding_size: int, num_classes: int) -> MarginSoftmax:
    """The loss that a configuration describes, with freshly drawn prototypes."""
    return MarginSoftmax(config, embedding_size, num_classes)
