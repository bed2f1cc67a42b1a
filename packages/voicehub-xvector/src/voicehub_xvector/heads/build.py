"""From a head's configuration to the head."""

from __future__ import annotations

from voicehub_xvector.head_config import (
    ConformerConfig,
    EcapaConfig,
    ResNet1dConfig,
    ResNet34Config,
)
from voicehub_xvector.heads.base import Head, PooledHead, Trunk
from voicehub_xvector.pooling import build_pooling


def build_head(
    config: ResNet1dConfig | ResNet34Config | EcapaConfig | ConformerConfig, input_size: int
) -> Head:
    """Return the head for features of ``input_size`` values a frame."""
    if isinstance(config, EcapaConfig):
        from voicehub_xvector.heads.ecapa import EcapaHead

        return EcapaHead(config, input_size)
    trunk, dropout = _trunk(config, input_size)
    pooling = build_pooling(config.pooling, trunk.output_size)
    return PooledHead(trunk, pooling, config.embedding_size, dropout)


def _trunk(
    config: ResNet1dConfig | ResNet34Config | ConformerConfig, input_size: int
) -> tuple[Trunk, float]:
    if isinstance(config, ConformerConfig):
        from voicehub_xvector.heads.conformer import ConformerTrunk

        return ConformerTrunk(config, input_size), 0.0
    if isinstance(config, ResNet34Config):
        from voicehub_xvector.heads.resnet34 import ResNet34Trunk

        return ResNet34Trunk(config, input_size), config.dropout
    from voicehub_xvector.heads.resnet1d import ResNet1dTrunk

    return ResNet1dTrunk(config, input_size), config.dropout
