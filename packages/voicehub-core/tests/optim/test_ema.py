"""The exponential moving average against its formula."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from voicehub.errors import CheckpointMismatchError
from voicehub.optim.ema import ExponentialMovingAverage, decay_at


def average(module: nn.Module, **options: object) -> ExponentialMovingAverage:
    settings: dict[str, object] = {"decay": 0.9, **options}
    return ExponentialMovingAverage(module, dict(module.named_parameters()), **settings)  # type: ignore[arg-type]


def test_the_warmup_of_the_decay() -> None:
    assert decay_at(0, 0.999, warmup=True) == 1 / 10
    assert decay_at(90, 0.999, warmup=True) == 91 / 100
    assert decay_at(10**6, 0.999, warmup=True) == 0.999
    assert decay_at(0, 0.999, warmup=False) == 0.999


@pytest.mark.parametrize("warmup", [True, False])
def test_updates_follow_the_formula(warmup: bool) -> None:
    torch.manual_seed(0)
    module = nn.Linear(3, 2).double()
    ema = average(module, warmup=warmup)
    expected = module.weight.detach().clone()
    for update in range(30):
        with torch.no_grad():
            module.weight.add_(torch.randn(2, 3, dtype=torch.float64))
        ema.update()
        decay = min(0.9, (1 + update) / (10 + update)) if warmup else 0.9
        expected = decay * expected + (1 - decay) * module.weight.detach()
    torch.testing.assert_close(ema.shadows()["weight"], expected, rtol=1e-12, atol=1e-12)
    assert ema.updates == 30


def test_half_precision_weights_are_averaged_in_float32() -> None:
    module = nn.Linear(4, 4, bias=False).to(torch.bfloat16)
    nn.init.zeros_(module.weight)
    ema = average(module, decay=0.999, warmup=False)
    nn.init.ones_(module.weight)
    for _ in range(10):
        ema.update()
    shadow = ema.shadows()["weight"]
    assert shadow.dtype is torch.float32
    torch.testing.assert_close(shadow, torch.full((4, 4), 1 - 0.999**10), rtol=1e-4, atol=0)


class TestBuffers:
    """Policies for batch statistics."""

    def norm(self) -> nn.BatchNorm1d:
        norm = nn.BatchNorm1d(2)
        norm.register_buffer("cache", torch.zeros(1), persistent=False)
        return norm

    def test_copy_leaves_the_buffers_of_the_model(self) -> None:
        norm = self.norm()
        ema = average(norm, buffer_policy="copy")
        norm.running_mean.fill_(4.0)  # type: ignore[union-attr]
        ema.update()
        assert set(ema.shadows()) == {"weight", "bias"}
        with ema.applied():
            assert norm.running_mean.tolist() == [4.0, 4.0]  # type: ignore[union-attr]

    def test_average_takes_floating_persistent_buffers(self) -> None:
        norm = self.norm()
        ema = average(norm, buffer_policy="average", warmup=False)
        assert set(ema.shadows()) == {"weight", "bias", "running_mean", "running_var"}
        norm.running_mean = torch.full((2,), 4.0)  # a module may put a new tensor in its place
        ema.update()
        with ema.applied():
            torch.testing.assert_close(norm.running_mean, torch.full((2,), 0.4))
        assert norm.running_mean.tolist() == [4.0, 4.0]


def test_raw_weights_come_back_also_on_errors() -> None:
    torch.manual_seed(0)
    module = nn.Linear(3, 2)
    ema = average(module)
    with torch.no_grad():
        module.weight.add_(1.0)
    raw = module.weight.detach().clone()
    with pytest.raises(RuntimeError, match="broken"), ema.applied():
        assert not torch.equal(module.weight, raw)
        raise RuntimeError("broken")
    assert torch.equal(module.weight, raw)


def test_state_round_trip_and_refusal() -> None:
    torch.manual_seed(0)
    module = nn.Linear(3, 2)
    ema = average(module)
    nn.init.ones_(module.weight)
    ema.update()
    other = average(nn.Linear(3, 2))
    other.load_state_dict(ema.state_dict())
    assert other.updates == 1
    assert torch.equal(other.shadows()["weight"], ema.shadows()["weight"])
    narrow = average(nn.Linear(2, 2))
    before = {name: value.clone() for name, value in narrow.shadows().items()}
    with pytest.raises(CheckpointMismatchError, match="weight"):
        narrow.load_state_dict(ema.state_dict())
    assert all(torch.equal(before[n], v) for n, v in narrow.shadows().items())
