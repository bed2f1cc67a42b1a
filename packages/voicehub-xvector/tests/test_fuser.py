"""Fusion of hidden states."""

from __future__ import annotations

import pytest
import torch

from voicehub_xvector.fuser import Fuser
from voicehub_xvector.head_config import FuserConfig

STATES = [torch.randn(2, 6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(i))
          for i in range(3)]  # fmt: skip
LENGTHS = torch.tensor([6, 4])
VALID = torch.arange(6)[None, :, None] < LENGTHS[:, None, None]


def fuse(**settings):
    fuser = Fuser(FuserConfig(**settings), 3, 4).double()
    return fuser, fuser(STATES, LENGTHS)


@pytest.mark.parametrize("kind", ["weighted-avg", "linear"])
def test_weights_start_as_the_plain_mean_and_learn(kind):
    fuser, fused = fuse(kind=kind)
    expected = torch.stack(STATES).mean(0).masked_fill(~VALID, 0.0)
    torch.testing.assert_close(fused, expected, rtol=1e-6, atol=1e-6)
    fused.square().sum().backward()
    (weights,) = fuser.parameters()
    assert weights.grad.abs().min() > 0


def test_last_is_the_highest_state():
    fuser, fused = fuse(kind="last")
    assert not list(fuser.parameters())
    torch.testing.assert_close(fused, STATES[-1].masked_fill(~VALID, 0.0))


def test_cat_reads_all_states():
    fuser, fused = fuse(kind="cat", size=5)
    expected = fuser.join(torch.cat(STATES, -1)).masked_fill(~VALID, 0.0)
    torch.testing.assert_close(fused, expected)
    assert fuser.output_size == 5


def test_mean_and_variance_are_of_valid_frames():
    _, fused = fuse(kind="last", normalize="mean+variance")
    for row, length in enumerate(LENGTHS.tolist()):
        own = fused[row, :length]
        torch.testing.assert_close(own.mean(0), torch.zeros(4, dtype=torch.float64))
        plain = STATES[-1][row, :length]
        scale = (plain.var(0, correction=0) + 1e-5).sqrt()
        torch.testing.assert_close(own, (plain - plain.mean(0)) / scale)
        assert fused[row, length:].abs().sum() == 0


def test_projection_and_masks():
    fuser = Fuser(FuserConfig(kind="last", size=3), 1, 4).double()
    time = torch.zeros(2, 6, dtype=torch.bool)
    time[0, 1:3] = True
    feature = torch.tensor([[False, True, False], [False, False, False]])
    fused = fuser(STATES, LENGTHS, time, feature)
    plain = fuser(STATES, LENGTHS)
    assert fused[0, 1:3].abs().sum() == 0 and fused[0, :, 1].abs().sum() == 0
    torch.testing.assert_close(fused[1], plain[1])
    torch.testing.assert_close(fused[0, 3:, [0, 2]], plain[0, 3:, [0, 2]])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"start": 3, "stop": 1}, "below start"),
        ({"kind": "last", "start": 1}, "start does nothing"),
    ],
)
def test_impossible_fusers_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        FuserConfig(**settings)
