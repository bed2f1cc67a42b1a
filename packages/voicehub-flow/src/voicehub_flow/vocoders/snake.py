"""Periodic activations without aliasing, of BigVGAN (Lee et al. 2023, section 3).

x + sin^2(alpha x) / beta bends a signal, which makes frequencies above half the rate: it is done
at twice the rate, between low-pass filters (windowed sinc, Kaiser window).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

_TAPS = 12
_TINY = 1e-9


def low_pass(cutoff: float, half_width: float, taps: int) -> Tensor:
    """A windowed sinc filter whose taps sum to 1.

    Args:
        cutoff: as a share of the sampling rate.
        half_width: of the transition band, likewise.
        taps: an even number.

    Returns:
        float32 (taps,).
    """
    half = taps // 2
    attenuation = 2.285 * (half - 1) * math.pi * 4 * half_width + 7.95
    if attenuation > 50.0:
        beta = 0.1102 * (attenuation - 8.7)
    elif attenuation >= 21.0:
        beta = 0.5842 * (attenuation - 21.0) ** 0.4 + 0.07886 * (attenuation - 21.0)
    else:
        beta = 0.0
    window = torch.kaiser_window(taps, beta=beta, periodic=False)
    time = torch.arange(-half, half) + 0.5
    values = 2 * cutoff * window * torch.sinc(2 * cutoff * time)
    return values / values.sum()


class Snake(nn.Module):
    """x + sin^2(alpha x) / beta, by channel; ``snake`` has one parameter for both.

    Args:
        channels: of the signal.
        separate: a beta of its own (``snakebeta``).
        logarithmic: parameters are logarithms of alpha and beta.
    """

    def __init__(self, channels: int, *, separate: bool, logarithmic: bool) -> None:
        super().__init__()
        first = torch.zeros if logarithmic else torch.ones
        self.alpha = nn.Parameter(first(channels))
        if separate:
            self.beta = nn.Parameter(first(channels))
        self.separate, self.logarithmic = separate, logarithmic

    def forward(self, x: Tensor) -> Tensor:
        """(B, channels, samples) to the same."""
        alpha = self.alpha[:, None]
        beta = self.beta[:, None] if self.separate else alpha
        if self.logarithmic:
            alpha, beta = alpha.exp(), beta.exp()
        return x + (alpha * x).sin().square() / (beta + _TINY)


class AliasFree(nn.Module):
    """An activation at twice the rate.

    Args:
        act: of (B, channels, samples).
    """

    def __init__(self, act: nn.Module) -> None:
        super().__init__()
        self.act = act
        taps = low_pass(0.25, 0.3, _TAPS)
        self.register_buffer("taps", taps.view(1, 1, -1), persistent=False)

    taps: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """(B, channels, samples) to the same."""
        return self._halved(self.act(self._doubled(x)))

    def _doubled(self, x: Tensor) -> Tensor:
        channels = x.shape[1]
        side = _TAPS // 2 - 1
        padded = functional.pad(x, (side, side), mode="replicate")
        filters = self.taps.expand(channels, -1, -1)
        raised = 2 * functional.conv_transpose1d(padded, filters, stride=2, groups=channels)
        cut = 2 * side + (_TAPS - 2) // 2
        return raised[..., cut:-cut]

    def _halved(self, x: Tensor) -> Tensor:
        channels = x.shape[1]
        padded = functional.pad(x, (_TAPS // 2 - 1, _TAPS // 2), mode="replicate")
        return functional.conv1d(
            padded, self.taps.expand(channels, -1, -1), stride=2, groups=channels
        )
