"""The projector ``mlp``."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from voicehub_asr_llm.config import MlpProjectorConfig
from voicehub_asr_llm.projectors.base import Projected, Projector, RMSNorm


class MlpProjector(Projector):
    """Stacked frames -> RMSNorm -> Linear -> GELU -> Linear.

    Args:
        config: sizes.
        encoder_size, decoder_size: width of frames and of outputs.
    """

    def __init__(self, config: MlpProjectorConfig, encoder_size: int, decoder_size: int) -> None:
        super().__init__(config.stride)
        size = config.stride * encoder_size
        self.norm = RMSNorm(size)
        self.first = nn.Linear(size, config.hidden_size)
        self.second = nn.Linear(config.hidden_size, decoder_size)

    def _project(self, states: Tensor, frames: Tensor) -> Projected:
        hidden = functional.gelu(self.first(self.norm(self.stacked(states))))
        return Projected(self.second(hidden))
