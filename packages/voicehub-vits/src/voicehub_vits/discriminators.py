"""The six discriminators of HiFi-GAN's lineage, and VITS2's discriminator of durations.

One reads the waveform as it is ("scale"), five read it folded by a period of 2, 3, 5, 7 and 11
samples (Kong et al. 2020, section 2.2). All convolutions are weight-normalised.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from voicehub_vits.specs import PERIODS

_SLOPE = 0.1
#: Channels of the scale discriminator's layers at full width, with kernel, stride and groups.
_SCALE_LAYERS = (
    (16, 15, 1, 1),
    (64, 41, 4, 4),
    (256, 41, 4, 16),
    (1024, 41, 4, 64),
    (1024, 41, 4, 256),
    (1024, 5, 1, 1),
)
_PERIOD_CHANNELS = (32, 128, 512, 1024, 1024)

Judged = tuple[Tensor, list[Tensor]]


class ScaleDiscriminator(nn.Module):
    """Convolutions over the raw waveform.

    Args:
        width: factor on the published channels; 1 is the published size.
    """

    def __init__(self, width: float = 1.0) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        previous = 1
        for channels, kernel, stride, groups in _SCALE_LAYERS:
            size = _scaled(channels, width)
            shared = _common_divisor(groups, previous, size)
            conv = nn.Conv1d(previous, size, kernel, stride, kernel // 2, groups=shared)
            self.layers.append(weight_norm(conv))
            previous = size
        self.output = weight_norm(nn.Conv1d(previous, 1, 3, 1, 1))

    def forward(self, waveform: Tensor) -> Judged:
        """Judge waveforms (B, 1, samples): logits (B, n), and the maps of every layer."""
        return _judge(waveform, self.layers, self.output)


class PeriodDiscriminator(nn.Module):
    """Convolutions over every ``period``-th sample.

    Args:
        period: samples.
        width: factor on the published channels.
    """

    def __init__(self, period: int, width: float = 1.0) -> None:
        super().__init__()
        self.period = period
        self.layers = nn.ModuleList()
        previous = 1
        for position, channels in enumerate(_PERIOD_CHANNELS):
            size = _scaled(channels, width)
            stride = 3 if position + 1 < len(_PERIOD_CHANNELS) else 1
            conv = nn.Conv2d(previous, size, (5, 1), (stride, 1), (2, 0))
            self.layers.append(weight_norm(conv))
            previous = size
        self.output = weight_norm(nn.Conv2d(previous, 1, (3, 1), 1, (1, 0)))

    def forward(self, waveform: Tensor) -> Judged:
        """Judge waveforms (B, 1, samples): logits (B, n), and the maps of every layer."""
        batch, channels, samples = waveform.shape
        missing = -samples % self.period
        if missing:
            waveform = nn.functional.pad(waveform, (0, missing), mode="reflect")
        folded = waveform.view(batch, channels, -1, self.period)
        return _judge(folded, self.layers, self.output)


class MultiDiscriminator(nn.Module):
    """The scale discriminator and one for each period.

    Args:
        width: factor on the published channels of all of them.
        periods: in samples.
    """

    def __init__(self, width: float = 1.0, periods: Sequence[int] = PERIODS) -> None:
        super().__init__()
        self.scale = ScaleDiscriminator(width)
        self.periods = nn.ModuleList(PeriodDiscriminator(period, width) for period in periods)

    def forward(self, waveform: Tensor) -> tuple[list[Tensor], list[list[Tensor]]]:
        """Judge waveforms.

        Args:
            waveform: float (B, 1, samples).

        Returns:
            Logits (B, n) and feature maps of every discriminator, the scale's first; the last
            feature map of each is its output, as published.
        """
        judged = [part(waveform) for part in (self.scale, *self.periods)]
        return [logits for logits, _ in judged], [maps for _, maps in judged]


class DurationDiscriminator(nn.Module):
    """Tells durations of the alignment from predicted ones (Kong et al. 2023, section 2.1).

    Args:
        text_channels: of the text encoder's output.
        channels: inside.
        conditioning: size of speaker embeddings; 0 for none.
    """

    def __init__(self, text_channels: int, channels: int, conditioning: int = 0) -> None:
        super().__init__()
        self.text = nn.ModuleList(
            [nn.Conv1d(text_channels, channels, 3, padding=1), _conv(channels, channels)]
        )
        self.text_norms = nn.ModuleList([nn.LayerNorm(channels), nn.LayerNorm(channels)])
        self.duration = nn.Conv1d(1, channels, 1)
        self.joint = nn.ModuleList([_conv(2 * channels, channels), _conv(channels, channels)])
        self.joint_norms = nn.ModuleList([nn.LayerNorm(channels), nn.LayerNorm(channels)])
        self.output = nn.Linear(channels, 1)
        self.condition = nn.Conv1d(conditioning, text_channels, 1) if conditioning else None

    def forward(
        self, text: Tensor, mask: Tensor, log_durations: Tensor, conditioning: Tensor | None = None
    ) -> Tensor:
        """Judge durations.

        Args:
            text: float (B, text_channels, tokens), taken as constants.
            mask: float (B, 1, tokens).
            log_durations: float (B, 1, tokens).
            conditioning: float (B, size, 1), or None.

        Returns:
            Logits (B, tokens); those in padding are 0.
        """
        hidden = text.detach()
        if self.condition is not None and conditioning is not None:
            hidden = hidden + self.condition(conditioning.detach())
        hidden = _blocks(hidden, mask, self.text, self.text_norms)
        joined = torch.cat([hidden, self.duration(log_durations)], dim=1)
        joined = _blocks(joined, mask, self.joint, self.joint_norms)
        logits: Tensor = self.output(joined.transpose(1, 2))[..., 0] * mask[:, 0]
        return logits


def _blocks(hidden: Tensor, mask: Tensor, convs: nn.ModuleList, norms: nn.ModuleList) -> Tensor:
    for conv, norm in zip(convs, norms, strict=True):
        hidden = norm(torch.relu(conv(hidden * mask)).transpose(1, 2)).transpose(1, 2)
    return hidden * mask


def _judge(hidden: Tensor, layers: nn.ModuleList, output: nn.Module) -> Judged:
    maps = []
    for layer in layers:
        hidden = nn.functional.leaky_relu(layer(hidden), _SLOPE)
        maps.append(hidden)
    hidden = output(hidden)
    maps.append(hidden)
    return hidden.flatten(1), maps


def _conv(inputs: int, outputs: int) -> nn.Conv1d:
    return nn.Conv1d(inputs, outputs, 3, padding=1)


def _scaled(channels: int, width: float) -> int:
    return max(4, round(channels * width))


def _common_divisor(groups: int, inputs: int, outputs: int) -> int:
    """The largest number of groups up to the published one that divides both sides."""
    return next(g for g in range(groups, 0, -1) if inputs % g == 0 and outputs % g == 0)
