"""ECAPA-TDNN: speechbrain's module."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from voicehub_xvector.head_config import EcapaConfig
from voicehub_xvector.heads.base import Head
from voicehub_xvector.speechbrain_parts import speechbrain_part


def ecapa_arguments(config: EcapaConfig, input_size: int) -> dict[str, Any]:
    """Return the arguments of speechbrain's class."""
    return {
        "input_size": input_size,
        "lin_neurons": config.embedding_size,
        "channels": list(config.channels),
        "kernel_sizes": list(config.kernels),
        "dilations": list(config.dilations),
        "attention_channels": config.attention_channels,
        "res2net_scale": config.scales,
        "se_channels": config.se_channels,
        "dropout": config.dropout,
    }


class EcapaHead(Head):
    """ECAPA on features (B, T, F).

    Its convolutions mirror the frames at both ends, padding included, so that utterances of
    unequal length are to run apart.

    Args:
        config: of the head.
        input_size: F.
    """

    padding_sensitive = True
    embedding_path = "ecapa.fc"

    def __init__(self, config: EcapaConfig, input_size: int) -> None:
        super().__init__()
        self.embedding_size = config.embedding_size
        ecapa_class = speechbrain_part("lobes.models.ECAPA_TDNN").ECAPA_TDNN
        self.ecapa = ecapa_class(**ecapa_arguments(config, input_size))

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        relative = lengths.to(features.dtype) / features.shape[1]
        # The trunk's parameters are frozen where ``without_trunk_grad`` is set, and its input has
        # no graph then: nothing is kept, so it needs no branch here.
        embedded: Tensor = self.ecapa(features, relative)[:, 0]
        return embedded

    def minimum_frames(self) -> int:
        """Frames that its mirrored convolutions need."""
        widest: int = max(
            (conv.kernel_size[0] - 1) * conv.dilation[0] // 2 + 1
            for conv in self.ecapa.modules()
            if isinstance(conv, torch.nn.Conv1d)
        )
        return widest
