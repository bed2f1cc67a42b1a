"""Residual convolutions over time, in five kinds of blocks."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from voicehub_xvector.head_config import Norm, ResNet1dConfig
from voicehub_xvector.heads.base import Trunk, strided
from voicehub_xvector.masking import build_norm, frame_mask, zero_padding


class ConvNorm(nn.Module):
    """Convolution over the valid frames, normalisation, and ReLU unless told otherwise."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int = 1,
        *,
        stride: int = 1,
        dilation: int = 1,
        norm: Norm = "batch",
        activation: bool = True,
    ) -> None:
        super().__init__()
        self.stride = stride
        self.conv = nn.Conv1d(
            inputs, outputs, kernel, stride, dilation * (kernel // 2), dilation, bias=False
        )
        self.norm = build_norm(norm, outputs)
        self.activation = activation

    def forward(self, frames: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Takes (B, C, T), zero behind ``lengths``; returns the same of the output."""
        lengths = strided(lengths, self.stride)
        out = self.norm(self.conv(frames), lengths)
        if self.activation:
            out = out.relu()
        return zero_padding(out, lengths), lengths


class SqueezeExcitation(nn.Module):
    """A gate on each channel from its mean over valid frames (Hu et al. 2018)."""

    def __init__(self, channels: int, ratio: int) -> None:
        super().__init__()
        hidden = max(1, channels // ratio)
        self.squeeze = nn.Linear(channels, hidden)
        self.excite = nn.Linear(hidden, channels)

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        """Takes (B, C, T), zero behind ``lengths``."""
        mean = frames.sum(-1) / lengths.clamp(min=1)[:, None].to(frames.dtype)
        gate = self.excite(self.squeeze(mean).relu()).sigmoid()
        return frames * gate[..., None]


class Res2Conv(nn.Module):
    """Channels in groups, each convolved with what the group before it gave (Gao et al. 2019)."""

    def __init__(
        self, channels: int, kernel: int, scales: int, *, dilation: int, norm: Norm
    ) -> None:
        super().__init__()
        width = channels // scales
        self.width = width
        self.steps = nn.ModuleList(
            ConvNorm(width, width, kernel, dilation=dilation, norm=norm) for _ in range(scales - 1)
        )

    def forward(self, frames: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Takes and returns (B, C, T), zero behind ``lengths``."""
        first, *rest = frames.split(self.width, 1)
        outputs, previous = [first], None
        for step, group in zip(self.steps, rest, strict=True):
            previous, _ = step(group if previous is None else group + previous, lengths)
            outputs.append(previous)
        return torch.cat(outputs, 1), lengths


class Block(nn.Module):
    """One residual block.

    Args:
        config: of the head.
        inputs, outputs, kernel, stride, dilation: of the block.
    """

    def __init__(
        self,
        config: ResNet1dConfig,
        inputs: int,
        outputs: int,
        kernel: int,
        stride: int,
        dilation: int,
    ) -> None:
        super().__init__()
        norm: Norm = config.norm
        if config.block in ("basic", "se"):
            layers = [
                ConvNorm(inputs, outputs, kernel, stride=stride, dilation=dilation, norm=norm),
                ConvNorm(outputs, outputs, kernel, dilation=dilation, norm=norm, activation=False),
            ]
        else:
            inner = max(1, int(outputs * config.bottleneck))
            middle = ConvNorm(inner, inner, kernel, dilation=dilation, norm=norm)
            if "res2" in config.block:
                middle = Res2Conv(inner, kernel, config.scales, dilation=dilation, norm=norm)
            layers = [
                ConvNorm(inputs, inner, stride=stride, norm=norm),
                middle,
                ConvNorm(inner, outputs, norm=norm, activation=False),
            ]
        self.layers = nn.ModuleList(layers)
        with_se = config.block in ("se", "se-res2")
        self.gate = SqueezeExcitation(outputs, config.se_ratio) if with_se else None
        changes = stride != 1 or inputs != outputs
        self.shortcut = (
            ConvNorm(inputs, outputs, stride=stride, norm=norm, activation=False)
            if changes
            else None
        )

    def forward(self, frames: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Takes (B, C, T), zero behind ``lengths``; returns the same of the output."""
        out, out_lengths = frames, lengths
        for layer in self.layers:
            out, out_lengths = layer(out, out_lengths)
        if self.gate is not None:
            out = self.gate(out, out_lengths)
        if self.shortcut is not None:
            frames, _ = self.shortcut(frames, lengths)
        return (out + frames).relu(), out_lengths


class ResNet1dTrunk(Trunk):
    """A first convolution, stages of blocks, and a last convolution where it is asked for.

    Args:
        config: of the head.
        input_size: F.
    """

    def __init__(self, config: ResNet1dConfig, input_size: int) -> None:
        super().__init__()
        norm: Norm = config.norm
        self.concatenate = config.concatenate
        self.first = ConvNorm(input_size, config.in_channels, config.in_kernel, norm=norm)
        stages, width = [], config.in_channels
        for channels, repeats, kernel, stride, dilation in zip(
            config.channels, config.repeats, config.kernels, config.strides, config.dilations,
            strict=True,
        ):  # fmt: skip
            blocks = []
            for number in range(repeats):
                step = stride if number == 0 else 1
                blocks.append(Block(config, width, channels, kernel, step, dilation))
                width = channels
            stages.append(nn.ModuleList(blocks))
        self.stages = nn.ModuleList(stages)
        self.output_size = sum(config.channels) if config.concatenate else width
        self.last = None
        if config.endpoint_channels:
            self.last = ConvNorm(self.output_size, config.endpoint_channels, norm=norm)
            self.output_size = config.endpoint_channels

    def forward(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        mask = frame_mask(lengths, features.shape[1])[..., None]
        frames = features.masked_fill(~mask, 0.0).transpose(1, 2)
        frames, lengths = self.first(frames, lengths)
        outputs = []
        for stage in self.stages:
            for block in stage:  # type: ignore[attr-defined]
                frames, lengths = block(frames, lengths)
            outputs.append(frames)
        if self.concatenate:
            frames = torch.cat(outputs, 1)
        if self.last is not None:
            frames, lengths = self.last(frames, lengths)
        return frames, lengths
