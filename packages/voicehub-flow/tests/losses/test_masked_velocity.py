"""The velocity error equals its definition on every path of the CPU, forward and backward."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from voicehub.errors import ConfigurationError, DataError
from voicehub.kernels import load_loss
from voicehub_flow.losses import masked_velocity_error
from voicehub_flow.losses.masked_velocity_mse import _cpu, ops, reference

Batch = tuple[Tensor, Tensor, Tensor, Tensor]
NARROW = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture(params=["c", "torch"])
def kernel(request: pytest.FixtureRequest) -> str:
    if request.param == "c" and _cpu.LIBRARY.unavailable():
        pytest.skip(f"no compiled path: {_cpu.LIBRARY.unavailable()}")
    return str(request.param)


def batch(shape: tuple[int, int, int], dtype: torch.dtype = torch.float64, seed: int = 0) -> Batch:
    """Prediction, noise, data, and a mask of frames at the front of each item, one of none."""
    torch.manual_seed(seed)
    tensors = [torch.randn(shape, dtype=torch.float64).to(dtype) for _ in range(3)]
    lengths = torch.randint(0, shape[1] + 1, shape[:1])
    return (*tensors, torch.arange(shape[1]) < lengths[:, None])  # type: ignore[return-value]


def expected(values: Batch, min_sigma: float) -> tuple[Tensor, Tensor]:
    """Errors, and the gradient of the errors times 1, 2, ... by the prediction; float64."""
    errors, gradient = [], torch.zeros(values[0].shape, dtype=torch.float64)
    for item, rows in enumerate(zip(*(tensor.tolist() for tensor in values), strict=True)):
        error, table = reference.masked_velocity_error(*rows, min_sigma)
        errors.append(error)
        gradient[item] = (item + 1) * torch.tensor(table, dtype=torch.float64).view(
            values[0].shape[1:]
        )
    return torch.tensor(errors, dtype=torch.float64), gradient


def found(values: Batch, min_sigma: float, kernel: str) -> tuple[Tensor, Tensor]:
    prediction = values[0].detach().requires_grad_()
    errors = masked_velocity_error(prediction, *values[1:], min_sigma=min_sigma, kernel=kernel)
    factors = torch.arange(1, len(errors) + 1, dtype=errors.dtype)
    (gradient,) = torch.autograd.grad((errors * factors).sum(), prediction)
    return errors.detach(), gradient


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(0, 3), st.integers(0, 9), st.integers(0, 40), st.sampled_from([0.0, 1e-4, 0.3]))
def test_it_equals_its_definition(items: int, frames: int, channels: int, min_sigma: float) -> None:
    values = batch((items, frames, channels), seed=frames)
    wanted, wanted_gradient = expected(values, min_sigma)
    for path in ("c", "torch") if _cpu.LIBRARY.unavailable() is None else ("torch",):
        errors, gradient = found(values, min_sigma, path)
        torch.testing.assert_close(errors, wanted, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(gradient, wanted_gradient, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("others", NARROW)
def test_narrow_inputs_are_widened(kernel: str, dtype: torch.dtype, others: torch.dtype) -> None:
    prediction, noise, data, mask = batch((3, 20, 1100), torch.float32)
    values = (prediction.to(dtype), noise.to(others), data.to(others), mask)
    errors, gradient = found(values, 0.1, kernel)
    wanted, wanted_gradient = expected(values, 0.1)
    assert errors.dtype == torch.float32 and gradient.dtype == dtype
    torch.testing.assert_close(errors.double(), wanted, rtol=1e-6, atol=1e-6)
    exact = dtype == torch.float32
    torch.testing.assert_close(
        gradient.double(), wanted_gradient, rtol=1e-5 if exact else 8e-3, atol=1e-5
    )
    rounded = wanted_gradient.to(dtype)
    assert exact or (gradient == rounded).double().mean() > 0.999, "not rounded to the nearest"


def test_one_wide_input_makes_all_wide(kernel: str) -> None:
    prediction, noise, data, mask = batch((2, 6, 5))
    values = (prediction.float(), noise, data.bfloat16(), mask)
    errors, gradient = found(values, 0.0, kernel)
    wanted, wanted_gradient = expected(values, 0.0)
    assert errors.dtype == torch.float64 and gradient.dtype == torch.float32
    torch.testing.assert_close(errors, wanted, rtol=1e-12, atol=0)
    torch.testing.assert_close(gradient, wanted_gradient.float(), rtol=1e-6, atol=1e-7)


def test_what_lies_outside_the_mask_has_no_influence(kernel: str) -> None:
    values = batch((3, 8, 5), torch.float32)
    mask = torch.rand(3, 8) < 0.6
    mask[2] = False
    clean = found((*values[:3], mask), 0.0, kernel)
    for junk in (math.nan, math.inf, 1e38):
        dirty = [tensor.masked_fill(~mask[..., None], junk) for tensor in values[:3]]
        for one, other in zip(found((*dirty, mask), 0.0, kernel), clean, strict=True):
            assert torch.equal(one, other)
    assert clean[0][2] == 0 and (clean[1][~mask] == 0).all()


def test_a_prediction_that_is_no_number_shows(kernel: str) -> None:
    prediction, noise, data, mask = batch((2, 4, 3), torch.float32)
    mask[:] = True
    prediction[1, 2, 1] = math.nan
    errors, gradient = found((prediction, noise, data, mask), 0.0, kernel)
    assert errors[0].isfinite() and errors[1].isnan()
    assert gradient.isnan().sum() == 1
    bfloat = found((prediction.bfloat16(), noise, data, mask), 0.0, kernel)[1]
    assert torch.equal(bfloat.isnan(), gradient.isnan())


def test_any_strides_give_the_same_bits(kernel: str) -> None:
    values = batch((3, 9, 7), torch.float32)
    plain = found(values, 0.2, kernel)
    channels_first = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in values[:3]]
    frames_first = [x.transpose(0, 1).contiguous().transpose(0, 1) for x in values[:3]]
    wide_mask = values[3].repeat_interleave(2, 1)[:, ::2]
    for tensors in (channels_first, frames_first):
        for one, other in zip(found((*tensors, wide_mask), 0.2, kernel), plain, strict=True):
            assert torch.equal(one, other)
    one_noise = values[1][:1, :1].expand(3, 9, 7)
    expanded = found((values[0], one_noise, *values[2:]), 0.2, kernel)
    copied = found((values[0], one_noise.clone(), *values[2:]), 0.2, kernel)
    assert torch.equal(expanded[0], copied[0]) and torch.equal(expanded[1], copied[1])


def test_it_is_equal_over_runs_threads_and_batches(kernel: str) -> None:
    values = batch((6, 300, 512), torch.float32)
    threads, results = torch.get_num_threads(), []
    try:
        for number in (1, 2, 3, 2):
            torch.set_num_threads(number)
            results.append(found(values, 0.0, kernel))
    finally:
        torch.set_num_threads(threads)
    for errors, gradient in results[1:]:
        assert torch.equal(errors, results[0][0]) and torch.equal(gradient, results[0][1])
    alone, _ = found(tuple(tensor[2:3] for tensor in values), 0.0, kernel)  # type: ignore[arg-type]
    assert torch.equal(alone, results[0][0][2:3])


def test_the_operator_keeps_the_rules_of_torch(kernel: str) -> None:
    *tensors, mask = batch((2, 5, 3))
    tensors = [tensor.requires_grad_() for tensor in tensors]

    def errors(*values: Tensor) -> Tensor:
        return masked_velocity_error(*values, mask, min_sigma=0.1, kernel=kernel)

    assert torch.autograd.gradcheck(errors, tensors)
    for own in (tensors, [tensors[0].detach().bfloat16().requires_grad_(), *tensors[1:]]):
        results = torch.library.opcheck(ops._error, (*own, mask, 0.1, kernel))
        assert set(results.values()) == {"SUCCESS"}
    slope = torch.ones(2, dtype=torch.float64)
    backward = (slope, *(tensor.detach() for tensor in tensors), mask, 0.1, kernel)
    results = torch.library.opcheck(ops._error_backward, backward)
    assert set(results.values()) == {"SUCCESS"}


@pytest.mark.parametrize(
    ("which", "change", "message"),
    [
        (0, lambda x: x[0], r"prediction must be \(batch, frames, channels\)"),
        (1, lambda x: x[:, :4], r"noise must be floating \(2, 5, 3\)"),
        (2, lambda x: x.long(), "data must be floating .* got torch.int64"),
        (2, lambda x: x.to("meta"), "data is on meta, the prediction on cpu"),
        (3, lambda x: x.float(), r"mask must be bool \(2, 5\)"),
        (3, lambda x: x[:, :4], r"mask must be bool \(2, 5\)"),
        (3, lambda x: x.to("meta"), "mask is on meta"),
    ],
)
def test_what_does_not_fit_is_refused(which, change, message) -> None:  # type: ignore[no-untyped-def]
    values = list(batch((2, 5, 3), torch.float32))
    values[which] = change(values[which])
    with pytest.raises(DataError, match=message):
        masked_velocity_error(*values)


def test_the_path_is_chosen_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    loss = load_loss("flow.masked_velocity_mse")
    monkeypatch.setenv("VOICEHUB_KERNELS", "flow.masked_velocity_mse=torch")
    assert loss.selected_kernel().path == "torch"
    monkeypatch.setattr(_cpu, "forward", None)  # would fail if it were called
    assert loss(*batch((1, 2, 3))).shape == (1,)
    with pytest.raises(ConfigurationError, match="triton.*does not run on cpu"):
        loss(*batch((1, 2, 3)), kernel="triton")
