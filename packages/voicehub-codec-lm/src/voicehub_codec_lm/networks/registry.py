"""Which layout a model type has."""

from __future__ import annotations

from voicehub_codec_lm.config import (
    CodecLMModelConfig,
    DelayModelConfig,
    DepthModelConfig,
    FlatModelConfig,
)
from voicehub_codec_lm.networks.base import Network
from voicehub_codec_lm.networks.delay import DelayNetwork
from voicehub_codec_lm.networks.depth import DepthNetwork
from voicehub_codec_lm.networks.flat import FlatNetwork
from voicehub_codec_lm.specs import DELAY, DEPTH, FLAT

NETWORKS: dict[str, tuple[type[Network], type[CodecLMModelConfig]]] = {
    FLAT: (FlatNetwork, FlatModelConfig),
    DELAY: (DelayNetwork, DelayModelConfig),
    DEPTH: (DepthNetwork, DepthModelConfig),
}
