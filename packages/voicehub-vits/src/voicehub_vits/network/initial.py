"""Random weights of a model that starts from nothing, as published.

transformers draws a ``VitsModel`` for being loaded into. Training needs the published start: flows
that begin as the identity, splines that begin as the identity, a decoder of small weights.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from voicehub_vits.network.weight_norm import decoder_convolutions

_DECODER_DEVIATION = 0.01


def draw_weights(model: Any, seed: int) -> None:
    """Draw the weights of a fresh ``VitsModel`` in place; torch's global state is left alone.

    Weight norm must be absent from the decoder.
    """
    with torch.random.fork_rng(devices=()), torch.no_grad():
        torch.manual_seed(seed)
        for module in model.modules():
            if isinstance(module, (nn.Conv1d, nn.Linear)):
                _draw(module)
        embedding = model.text_encoder.embed_tokens
        nn.init.normal_(embedding.weight, 0.0, embedding.embedding_dim**-0.5)
        for layer in decoder_convolutions(model.decoder):
            _draw_decoder(layer)
        for flow in model.flow.flows:
            _zero(flow.conv_post)
        if model.config.use_stochastic_duration_prediction:
            predictor = model.duration_predictor
            for flow in [*predictor.flows[1:], *predictor.post_flows[1:]]:
                _zero(flow.conv_proj)


def _draw(layer: Any) -> None:
    """torch's own start of a layer; through the parametrization where there is one."""
    weight = torch.empty_like(layer.weight)
    nn.init.kaiming_uniform_(weight, a=5**0.5)
    layer.weight = weight if hasattr(layer, "parametrizations") else nn.Parameter(weight)
    if layer.bias is not None:
        bound = weight[0].numel() ** -0.5
        nn.init.uniform_(layer.bias, -bound, bound)


def _draw_decoder(layer: Any) -> None:
    """Normal, of the published deviation or, in narrow layers, as wide as keeps a signal alive."""
    fan_in = layer.weight[0].numel()
    if isinstance(layer, nn.ConvTranspose1d):
        # Of its kernel an output sample sees one in ``stride``.
        fan_in = layer.in_channels * layer.kernel_size[0] // layer.stride[0]
    nn.init.normal_(layer.weight, 0.0, max(_DECODER_DEVIATION, (2.0 * fan_in) ** -0.5))


def _zero(layer: Any) -> None:
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
