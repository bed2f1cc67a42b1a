"""Running code on tensors that have shapes and no numbers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from voicehub.planning.allocations import GRADIENTS, OPTIMIZER, WEIGHTS, Allocations
from voicehub.planning.shapes import ShapesOnly, ShapesOnlyError
from voicehub.planning.work import WorkCounter


def test_a_model_is_built_and_steps_without_memory() -> None:
    mode = ShapesOnly()
    with mode.entered():
        model = nn.Sequential(nn.Linear(10**6, 10**5), nn.ReLU(), nn.Linear(10**5, 3)).half()
        loss = model(torch.randn(7, 10**6, dtype=torch.float16)).float().square().mean()
        loss.backward()
        assert float(loss.detach()) == 1.0  # finite, as in a healthy step
    assert model[0].weight.shape == (10**5, 10**6)  # 200 GB
    assert model[0].weight.dtype is torch.float16 and model[0].weight.grad is not None


def test_integers_and_masks_are_real() -> None:
    mode = ShapesOnly()
    values = mode.hollow({"x": torch.randn(3, 5), "lengths": torch.tensor([5, 2, 4])})
    with mode.entered():
        mask = torch.arange(5)[None] < values["lengths"][:, None]
        assert values["x"][mask].shape == (11,)
        assert int(values["lengths"].max()) == 5
        kept = values["x"].masked_fill(~mask, 0.0)
    assert kept.shape == (3, 5)


def test_numbers_are_healthy_and_shapes_from_them_are_refused() -> None:
    mode = ShapesOnly()
    x = mode.hollow(torch.randn(4))
    with mode.entered():
        assert not torch.isnan(x).any() and torch.isfinite(x).all() and not torch.isinf(x).any()
        with pytest.raises(ShapesOnlyError, match="numbers of a floating tensor"):
            x[x > 0]


def test_tied_weights_stay_tied() -> None:
    mode = ShapesOnly()
    real = nn.ModuleList([nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)])
    real[1].weight = real[0].weight
    mode.hollow_module(real)
    assert real[1].weight is real[0].weight and len(list(real.parameters())) == 1
    with mode.entered():
        real.to(torch.float16)
    assert real[1].weight is real[0].weight and real[0].weight.dtype is torch.float16


def test_allocations_by_hand() -> None:
    """A linear layer and SGD: every byte at the worst moment is known."""
    watch = Allocations()
    mode = ShapesOnly(watch)
    with mode.entered():
        layer = nn.Linear(100, 50, bias=False)
        x = mode.hollow(torch.randn(8, 100))
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9, foreach=False)
        for _ in range(2):
            watch.start_step()
            with watch.inside_modules():
                loss = layer(x).sum()
            loss.backward()
            watch.name(GRADIENTS, [layer.weight.grad])
            watch.optimizers_begin()
            optimizer.step()
            watch.optimizers_end()
            watch.name(OPTIMIZER, [optimizer.state[layer.weight]["momentum_buffer"]])
            watch.name(WEIGHTS, layer.parameters())
            optimizer.zero_grad()
    found = watch.at_peak()
    assert found[WEIGHTS] == found[GRADIENTS] == found[OPTIMIZER] == 4 * 5000
    assert watch.peak == sum(found.values()) < 4 * (3 * 5000 + 2 * 8 * 50 + 100)


def test_work_counts_multiplications() -> None:
    counter = WorkCounter()
    mode = ShapesOnly(counter)
    with mode.entered():
        torch.randn(4, 16) @ torch.randn(16, 8)
    work = counter.total()
    assert work.flops == 2 * 4 * 16 * 8
    assert work.needed_bytes == 4 * (4 * 16 + 16 * 8 + 4 * 8) <= work.moved_bytes
    assert work.scaled(0.5).flops == work.flops / 2


@pytest.mark.parametrize(("channels", "stride"), [(16, 1), (16, 2), (1, 5)])
def test_convolutions_pass_by_what_their_kernels_copy(channels: int, stride: int) -> None:
    """What oneDNN lays out anew, on a CPU alone; what does not lie in one piece, everywhere."""
    inputs, weight = torch.randn(4, channels, 400), torch.randn(24, channels, 5)
    scattered = torch.randn(400, channels, 4).permute(2, 1, 0)
    output = 4 * torch.nn.functional.conv1d(inputs, weight, stride=stride).numel()
    read = 4 * (inputs.numel() * (channels > 1) + weight.numel())
    assert extra(inputs, weight, stride, on_card=True) == output
    assert extra(inputs, weight, stride, on_card=False) == output + max(read, output)
    assert extra(scattered, weight, stride, on_card=True) == output + 4 * scattered.numel()


def extra(inputs: torch.Tensor, weight: torch.Tensor, stride: int, *, on_card: bool) -> int:
    """Most bytes that a convolution holds beside its arguments."""
    watch = Allocations(on_card=on_card)
    mode = ShapesOnly(watch)
    x, w = mode.hollow(inputs), mode.hollow(weight)
    with mode.entered():
        torch.nn.functional.conv1d(x, w, stride=stride)
    return watch.peak
