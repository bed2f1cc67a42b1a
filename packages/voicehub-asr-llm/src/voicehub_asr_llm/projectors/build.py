"""From a configuration to a projector."""

from __future__ import annotations

import torch

from voicehub_asr_llm.config import MlpProjectorConfig, MoeProjectorConfig, QFormerProjectorConfig
from voicehub_asr_llm.projectors.base import Projector
from voicehub_asr_llm.projectors.mlp import MlpProjector
from voicehub_asr_llm.projectors.moe import MoeProjector
from voicehub_asr_llm.projectors.qformer import QFormerProjector


def build_projector(
    config: MlpProjectorConfig | MoeProjectorConfig | QFormerProjectorConfig,
    encoder_size: int,
    decoder_size: int,
    *,
    seed: int,
) -> Projector:
    """Return a new projector in float32; torch's global random state stays as it was."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        if isinstance(config, MlpProjectorConfig):
            return MlpProjector(config, encoder_size, decoder_size)
        if isinstance(config, MoeProjectorConfig):
            return MoeProjector(config, encoder_size, decoder_size)
        return QFormerProjector(config, encoder_size, decoder_size)
