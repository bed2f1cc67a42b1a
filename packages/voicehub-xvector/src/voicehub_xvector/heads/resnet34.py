"""Two-dimensional residual network over features and time (He et al. 2016; for speakers, Zeinali
et al. 2019)."""

from __future__ import annotations

from torch import Tensor, nn

from voicehub_xvector.head_config import ResNet34Config
from voicehub_xvector.heads.base import Trunk, strided
from voicehub_xvector.masking import MaskedBatchNorm, zero_padding


class _Conv(nn.Module):
    """3 x 3 or 1 x 1 convolution over (B, C, F, T) and batch normalisation over valid frames."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.stride = stride
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        self.norm = MaskedBatchNorm(outputs)

    def forward(self, maps: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        lengths = strided(lengths, self.stride)
        return zero_padding(self.norm(self.conv(maps), lengths), lengths), lengths


class _Block(nn.Module):
    """Two convolutions around which the input is added."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = _Conv(inputs, outputs, 3, stride)
        self.second = _Conv(outputs, outputs, 3)
        changes = stride != 1 or inputs != outputs
        self.shortcut = _Conv(inputs, outputs, 1, stride) if changes else None

    def forward(self, maps: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        out, out_lengths = self.first(maps, lengths)
        out, _ = self.second(out.relu(), out_lengths)
        if self.shortcut is not None:
            maps, _ = self.shortcut(maps, lengths)
        return (out + maps).relu(), out_lengths


class ResNet34Trunk(Trunk):
    """A first convolution and four stages; each stage but the first halves features and time.

    Args:
        config: of the head.
        input_size: F.
    """

    def __init__(self, config: ResNet34Config, input_size: int) -> None:
        super().__init__()
        width = config.base_channels
        self.first = _Conv(1, width, 3)
        blocks, features = [], input_size
        for stage, repeats in enumerate(config.blocks):
            channels, stride = config.base_channels << stage, 1 if stage == 0 else 2
            features = strided(features, stride)
            for number in range(repeats):
                blocks.append(_Block(width, channels, stride if number == 0 else 1))
                width = channels
        self.blocks = nn.ModuleList(blocks)
        self.output_size = width * features

    def forward(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        maps = zero_padding(features.transpose(1, 2)[:, None], lengths)
        maps, lengths = self.first(maps, lengths)
        maps = maps.relu()
        for block in self.blocks:
            maps, lengths = block(maps, lengths)
        return maps.flatten(1, 2), lengths
