"""Eval mode for a while: every part returns to its own mode, after an error too."""

from __future__ import annotations

import pytest
from torch import nn

from voicehub.models.modes import eval_mode


def mixed() -> nn.Module:
    network = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Dropout(), nn.BatchNorm1d(2)))
    network.train()
    network[1][1].eval()
    return network


def modes(network: nn.Module) -> list[bool]:
    return [part.training for part in network.modules()]


def test_every_part_is_in_eval_mode_and_returns_to_its_own():
    network = mixed()
    before = modes(network)
    with eval_mode(network):
        assert not any(modes(network))
    assert modes(network) == before == [True, True, True, True, False]


def test_modes_return_after_an_error():
    network = mixed()
    before = modes(network)
    with pytest.raises(RuntimeError, match="inside"), eval_mode(network):
        raise RuntimeError("inside")
    assert modes(network) == before
