"""Convolutions over time that keep the channels of a step next to each other in memory.

The duration predictor alternates depthwise convolutions, 1x1 convolutions and layer norms over the
channels. On a CPU all three are fastest where channels lie last: in the usual layout every norm
transposes twice, and the depthwise gradient runs at half the speed.
"""

from __future__ import annotations

import types
from collections.abc import Iterator

from torch import Tensor, channels_last, nn
from torch.nn import functional

_FORWARD = "_conv_forward"


def train_channels_last(module: nn.Module) -> None:
    """Let the 1-d convolutions of a module run channels last, on the CPU while it trains.

    Weights and state dict stay as they are; sums round differently. Evaluation, synthesis and other
    devices run as before.
    """
    for layer in _convolutions(module):
        setattr(layer, _FORWARD, types.MethodType(_forward, layer))


def train_as_before(module: nn.Module) -> None:
    """Undo :func:`train_channels_last`."""
    for layer in _convolutions(module):
        vars(layer).pop(_FORWARD, None)


def _convolutions(module: nn.Module) -> Iterator[nn.Conv1d]:
    for layer in module.modules():
        if isinstance(layer, nn.Conv1d) and isinstance(layer.padding, tuple):
            yield layer


def _forward(layer: nn.Conv1d, hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if not layer.training or hidden.device.type != "cpu" or layer.padding_mode != "zeros":
        return nn.Conv1d._conv_forward(layer, hidden, weight, bias)
    (stride,), (padding,), (dilation,) = layer.stride, tuple(layer.padding), layer.dilation
    made = functional.conv2d(
        hidden.unsqueeze(2).contiguous(memory_format=channels_last),
        weight.unsqueeze(2).contiguous(memory_format=channels_last),
        bias,
        (1, stride),
        (0, int(padding)),
        (1, dilation),
        layer.groups,
    )
    return made.squeeze(2)
