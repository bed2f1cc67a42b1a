"""The generator of HiFi-GAN (Kong et al. 2020) and BigVGAN (Lee et al. 2023).

Transposed convolutions raise the rate; after each, residual blocks of several kernel sizes are
averaged. The two differ in their activations alone: leaky ReLU, or periodic ones (``snake``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Activation = Callable[[int], nn.Module]
_SLOPE = 0.1


@dataclass(frozen=True)
class GeneratorSizes:
    """Sizes, by the names of the published configurations."""

    num_mels: int
    upsample_rates: tuple[int, ...]
    upsample_kernel_sizes: tuple[int, ...]
    upsample_initial_channel: int
    resblock_kernel_sizes: tuple[int, ...]
    resblock_dilation_sizes: tuple[tuple[int, ...], ...]
    resblock: str = "1"
    final_bias: bool = True
    final_tanh: bool = True

    @property
    def hop_length(self) -> int:
        """Samples a frame."""
        product = 1
        for rate in self.upsample_rates:
            product *= rate
        return product


def _same(channels: int, kernel: int, dilation: int) -> nn.Conv1d:
    padding = dilation * (kernel - 1) // 2
    return nn.Conv1d(channels, channels, kernel, dilation=dilation, padding=padding)


class PairedBlock(nn.Module):
    """Residual block 1: a dilated and a plain convolution, each after an activation."""

    def __init__(
        self, channels: int, kernel: int, dilations: Sequence[int], act: Activation | None
    ) -> None:
        super().__init__()
        self.convs1 = nn.ModuleList(_same(channels, kernel, d) for d in dilations)
        self.convs2 = nn.ModuleList(_same(channels, kernel, 1) for _ in dilations)
        self.activations = _activations(act, channels, 2 * len(dilations))

    def forward(self, x: Tensor) -> Tensor:
        """(B, channels, samples) to the same."""
        acts = list(self.activations)
        for number, (first, second) in enumerate(zip(self.convs1, self.convs2, strict=True)):
            hidden = first(_act(acts, 2 * number, x))
            x = x + second(_act(acts, 2 * number + 1, hidden))
        return x


class SingleBlock(nn.Module):
    """Residual block 2: dilated convolutions alone."""

    def __init__(
        self, channels: int, kernel: int, dilations: Sequence[int], act: Activation | None
    ) -> None:
        super().__init__()
        self.convs = nn.ModuleList(_same(channels, kernel, d) for d in dilations)
        self.activations = _activations(act, channels, len(dilations))

    def forward(self, x: Tensor) -> Tensor:
        """(B, channels, samples) to the same."""
        acts = list(self.activations)
        for number, conv in enumerate(self.convs):
            x = x + conv(_act(acts, number, x))
        return x


def _activations(act: Activation | None, channels: int, count: int) -> nn.ModuleList:
    """One module each, where they have parameters; none for leaky ReLU."""
    return nn.ModuleList() if act is None else nn.ModuleList(act(channels) for _ in range(count))


def _act(activations: Sequence[nn.Module], number: int, x: Tensor) -> Tensor:
    if not activations:
        return functional.leaky_relu(x, _SLOPE)
    out: Tensor = activations[number](x)
    return out


class Generator(nn.Module):
    """Mel frames (B, num_mels, frames) to a waveform (B, frames x hop).

    Args:
        sizes: of the layers.
        activation: of a number of channels; None is leaky ReLU.
    """

    def __init__(self, sizes: GeneratorSizes, activation: Activation | None = None) -> None:
        super().__init__()
        self.sizes = sizes
        first = sizes.upsample_initial_channel
        self.conv_pre = nn.Conv1d(sizes.num_mels, first, 7, padding=3)
        self.ups = nn.ModuleList()
        self.resblocks = nn.ModuleList()
        kind: Any = PairedBlock if sizes.resblock == "1" else SingleBlock
        channels = first
        rates = zip(sizes.upsample_rates, sizes.upsample_kernel_sizes, strict=True)
        for rate, kernel in rates:
            raised = nn.ConvTranspose1d(
                channels, channels // 2, kernel, rate, padding=(kernel - rate) // 2
            )
            self.ups.append(raised)
            channels //= 2
            for size, dilations in zip(
                sizes.resblock_kernel_sizes, sizes.resblock_dilation_sizes, strict=True
            ):
                self.resblocks.append(kind(channels, size, dilations, activation))
        self.activation_post = nn.Identity() if activation is None else activation(channels)
        self.conv_post = nn.Conv1d(channels, 1, 7, padding=3, bias=sizes.final_bias)
        self._periodic = activation is not None

    def forward(self, mel: Tensor) -> Tensor:
        """(B, num_mels, frames) to (B, samples)."""
        x: Tensor = self.conv_pre(mel)
        kinds = len(self.sizes.resblock_kernel_sizes)
        for number, raised in enumerate(self.ups):
            if not self._periodic:
                x = functional.leaky_relu(x, _SLOPE)
            x = raised(x)
            blocks = self.resblocks[number * kinds : (number + 1) * kinds]
            x = torch.stack([block(x) for block in blocks]).sum(0) / kinds
        # The last slope is torch's default, as published.
        x = self.activation_post(x) if self._periodic else functional.leaky_relu(x)
        x = self.conv_post(x)[:, 0]
        return torch.tanh(x) if self.sizes.final_tanh else x.clamp(-1.0, 1.0)
