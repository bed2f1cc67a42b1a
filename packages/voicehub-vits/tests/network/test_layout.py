"""Convolutions that run channels last compute what they computed before."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from voicehub_vits.network.layout import train_as_before, train_channels_last


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv1d(6, 6, 3, padding=2, dilation=2, groups=6),
        nn.Conv1d(6, 4, 1),
        nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 8, 5, stride=2, padding=2, bias=False)),
    ).double()


def gradients(module: nn.Module, hidden: torch.Tensor) -> list[torch.Tensor]:
    found = torch.autograd.grad(module(hidden).square().sum(), [hidden, *module.parameters()])
    return list(found)


def test_values_gradients_and_state_stay() -> None:
    plain, turned = layers(), layers()
    train_channels_last(turned)
    hidden = torch.randn(3, 6, 17, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(turned(hidden), plain(hidden), rtol=1e-12, atol=1e-12)
    for found, expected in zip(gradients(turned, hidden), gradients(plain, hidden), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    assert list(turned.state_dict()) == list(plain.state_dict())


def test_outside_of_training_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    turned = layers()
    train_channels_last(turned)
    monkeypatch.setattr(torch.nn.functional, "conv2d", None)
    hidden = torch.randn(1, 6, 9, dtype=torch.float64)
    assert torch.equal(turned.eval()(hidden), layers().eval()(hidden))
    with pytest.raises(TypeError):
        turned.train()(hidden)
    train_as_before(turned)
    assert torch.equal(turned(hidden), layers()(hidden))


def test_a_copy_runs_on_its_own_weights() -> None:
    turned = layers()
    train_channels_last(turned)
    other = copy.deepcopy(turned)
    with torch.no_grad():
        for parameter in turned.parameters():
            parameter.zero_()
    hidden = torch.randn(1, 6, 9, dtype=torch.float64)
    torch.testing.assert_close(other(hidden), layers()(hidden))
