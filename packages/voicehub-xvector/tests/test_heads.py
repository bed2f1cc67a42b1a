"""Heads, poolings and normalisation see valid frames alone."""

from __future__ import annotations

import math

import pytest
import torch
from pydantic import TypeAdapter
from torch import nn

from voicehub.errors import ConfigurationError
from voicehub_xvector.head_config import HeadConfig, PoolingConfig
from voicehub_xvector.heads import build_head
from voicehub_xvector.heads.conformer import RelativeAttention, _relative_positions
from voicehub_xvector.masking import MaskedBatchNorm, zero_padding
from voicehub_xvector.pooling import build_pooling

POOLINGS = (
    "mean", "mean+stddev", "mean+logvar", "lde", "scaled-dot-product", "channel-attention",
)  # fmt: skip
RESNET = {
    "kind": "resnet1d", "in_channels": 16, "channels": [16, 24], "repeats": [1, 2],
    "kernels": [3, 5], "strides": [1, 2], "dilations": [2, 1], "se_ratio": 4, "scales": 4,
    "embedding_size": 7,
}  # fmt: skip
HEADS = {
    **{f"resnet1d-{block}": {**RESNET, "block": block, "bottleneck": 0.5}
       for block in ("basic", "bn", "se", "res2", "se-res2")},
    "resnet1d-layer": {**RESNET, "norm": "layer"},
    "resnet1d-joined": {**RESNET, "strides": [1, 1], "concatenate": True, "endpoint_channels": 20},
    "resnet34": {"kind": "resnet34", "base_channels": 4, "embedding_size": 7},
    "conformer": {
        "kind": "conformer", "hidden_size": 16, "num_blocks": 2, "feed_forward_size": 24,
        "kernel_size": 5, "embedding_size": 7, "dropout": 0.0,
    },
    "conformer-stride": {
        "kind": "conformer", "hidden_size": 16, "num_blocks": 1, "feed_forward_size": 24,
        "kernel_size": 5, "stride": 2, "embedding_size": 7, "dropout": 0.0,
    },
}  # fmt: skip


def head_of(values, size=12, seed=0):
    torch.manual_seed(seed)
    return build_head(TypeAdapter(HeadConfig).validate_python(values), size).double().eval()


def _garbage(features, lengths):
    filled = features.clone()
    for row, length in enumerate(lengths.tolist()):
        filled[row, length:] = 50.0
    return filled


@pytest.mark.parametrize("name", HEADS)
def test_padding_changes_no_embedding(name):
    head = head_of(HEADS[name])
    lengths = torch.tensor([31, 17, 40])
    features = torch.randn(3, 40, 12, dtype=torch.float64)
    together = head(_garbage(features, lengths), lengths)
    alone = [
        head(features[i : i + 1, :length], lengths[i : i + 1])
        for i, length in enumerate(lengths.tolist())
    ]
    assert together.shape == (3, 7)
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", [n for n in HEADS if n in ("resnet1d-layer", "conformer")])
def test_padding_changes_no_gradient_while_training(name):
    lengths = torch.tensor([11, 25])
    features = torch.randn(2, 25, 12, dtype=torch.float64)
    gradients = []
    for apart in (False, True):
        head = head_of(HEADS[name]).train()
        if apart:
            outputs = [head(features[i : i + 1, :n], lengths[i : i + 1])
                       for i, n in enumerate(lengths.tolist())]  # fmt: skip
            torch.cat(outputs).square().sum().backward()
        else:
            head(_garbage(features, lengths), lengths).square().sum().backward()
        gradients.append([p.grad for p in head.parameters()])
    for first, second in zip(*gradients, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("kind", POOLINGS)
def test_pooling_sees_valid_frames_alone(kind):
    torch.manual_seed(0)
    pooling = build_pooling(PoolingConfig(kind=kind), 8).double()
    lengths = torch.tensor([5, 12])
    frames = torch.randn(2, 8, 12, dtype=torch.float64)
    garbage = _garbage(frames.transpose(1, 2), lengths).transpose(1, 2)
    together = pooling(garbage, lengths)
    assert together.shape == (2, pooling.output_size)
    alone = torch.cat([pooling(frames[:1, :, :5], lengths[:1]), pooling(frames[1:], lengths[1:])])
    torch.testing.assert_close(together, alone, rtol=1e-10, atol=1e-12)


def test_statistics_are_those_of_the_definition():
    frames = torch.randn(1, 3, 9, dtype=torch.float64)
    lengths = torch.tensor([9])
    mean, deviation = frames.mean(-1), frames.std(-1, correction=0)
    pooled = {kind: build_pooling(PoolingConfig(kind=kind), 3)(frames, lengths)
              for kind in ("mean", "mean+stddev", "mean+logvar")}  # fmt: skip
    torch.testing.assert_close(pooled["mean"], mean)
    torch.testing.assert_close(pooled["mean+stddev"], torch.cat([mean, deviation], 1))
    torch.testing.assert_close(pooled["mean+logvar"], torch.cat([mean, 2 * deviation.log()], 1))


def test_attention_heads_must_divide_the_channels():
    with pytest.raises(ConfigurationError, match="no multiple"):
        build_pooling(PoolingConfig(kind="scaled-dot-product", heads=3), 8)


def test_settings_of_another_pooling_are_refused():
    with pytest.raises(ValueError, match="components is read by pooling kind 'lde'"):
        PoolingConfig(kind="mean", components=4)


def test_masked_batch_norm_equals_torch_on_whole_batches():
    ours, theirs = MaskedBatchNorm(4).double(), nn.BatchNorm1d(4).double()
    theirs.load_state_dict(ours.state_dict())
    for _ in range(3):
        frames = torch.randn(3, 4, 10, dtype=torch.float64)
        whole = torch.full((3,), 10)
        torch.testing.assert_close(ours(frames, whole), theirs(frames))
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict())
    ours.eval(), theirs.eval()
    torch.testing.assert_close(ours(frames, whole), theirs(frames))


def test_masked_batch_norm_takes_statistics_of_valid_frames():
    ours, theirs = MaskedBatchNorm(4).double(), nn.BatchNorm1d(4).double()
    lengths = torch.tensor([7, 10, 2])
    frames = torch.randn(3, 4, 10, dtype=torch.float64) * 3 + 1
    valid = torch.cat([frames[i, :, :n] for i, n in enumerate(lengths.tolist())], 1)
    expected = theirs(valid.T)
    result = zero_padding(ours(_garbage(frames.mT, lengths).mT, lengths), lengths)
    got = torch.cat([result[i, :, :n] for i, n in enumerate(lengths.tolist())], 1).T
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict())


def test_relative_attention_equals_its_definition():
    torch.manual_seed(0)
    size, heads, time = 8, 2, 5
    layer = RelativeAttention(size, heads, 0.0).double()
    nn.init.normal_(layer.content_bias)
    nn.init.normal_(layer.position_bias)
    x = torch.randn(1, time, size, dtype=torch.float64)
    got = layer(x, torch.ones(1, time, dtype=torch.bool), _relative_positions(x))
    q, k, v = layer.qkv(layer.norm(x)).view(time, 3, heads, size // heads).unbind(1)
    rows = []
    for h in range(heads):
        scores = torch.zeros(time, time, dtype=torch.float64)
        for t in range(time):
            for s in range(time):
                angle = [(t - s) * 10000 ** (-2 * i / size) for i in range(size // 2)]
                table = torch.tensor(
                    [f(a) for a in angle for f in (math.sin, math.cos)], dtype=torch.float64
                )
                p = layer.position(table).view(heads, -1)[h]
                scores[t, s] = (q[t, h] + layer.content_bias[h]) @ k[s, h]
                scores[t, s] += (q[t, h] + layer.position_bias[h]) @ p
        rows.append((scores / math.sqrt(size // heads)).softmax(-1) @ v[:, h])
    torch.testing.assert_close(got, x + layer.out(torch.stack(rows, 1).flatten(1))[None])


def test_ecapa_declares_that_padding_matters():
    head = head_of(
        {"kind": "ecapa", "channels": [16, 16, 16, 16, 24], "scales": 4, "attention_channels": 4,
         "se_channels": 4, "embedding_size": 7}
    )  # fmt: skip
    features = torch.randn(2, 40, 12, dtype=torch.float64)
    short = torch.tensor([25, 40])
    padded = head(features, short)[0]
    alone = head(features[:1, :25], short[:1])[0]
    assert head.padding_sensitive and (padded - alone).abs().max() > 1e-4


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({**RESNET, "channels": [16]}, "one number a stage"),
        ({**RESNET, "kernels": [4, 3]}, "kernels must be odd"),
        ({**RESNET, "concatenate": True}, "strides of 1"),
        ({**RESNET, "block": "res2", "channels": [16, 20]}, "multiples of scales"),
        ({"kind": "conformer", "hidden_size": 10, "num_heads": 4}, "no multiple"),
    ],
)
def test_impossible_heads_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        TypeAdapter(HeadConfig).validate_python(values)
