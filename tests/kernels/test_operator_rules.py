"""What every operator of a loss keeps, whatever it computes: one set of checks for all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from operators import OPERATORS, Operator, Recorder
from torch import Tensor
from torch._subclasses import FakeTensorMode

from voicehub.errors import DataError, UnsupportedTrainingError

DIFFERENTIABLE = [operator for operator in OPERATORS if operator.differentiable]
#: torch's own CTC reads lengths on the host, and has neither a compiled nor a second form.
OURS = [operator for operator in OPERATORS if operator.name != "ctc native"]


def ids(operator: Operator) -> str:
    return operator.name


every = pytest.mark.parametrize("operator", OPERATORS, ids=ids)
ours = pytest.mark.parametrize("operator", OURS, ids=ids)
differentiable = pytest.mark.parametrize("operator", DIFFERENTIABLE, ids=ids)


@pytest.fixture
def poisoned_memory() -> Iterator[None]:
    """What ``torch.empty`` returns is filled with what is no number, or the largest one."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def same(one: tuple[Tensor, ...], other: tuple[Tensor, ...]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@every
@pytest.mark.usefixtures("poisoned_memory")
def test_a_size_of_zero_is_refused_or_defined(operator: Operator) -> None:
    for name in operator.sizes:
        values, targets = operator.inputs(**{name: 0})
        try:
            result, *gradients = operator.gradients(values, targets)
        except DataError:
            continue
        assert not result.isnan().any(), name
        assert result.abs().sum() in (0.0, torch.inf) or result.max() < 1e3, name
        for value, gradient in zip(values, gradients, strict=False):
            assert gradient.shape == value.shape and gradient.isfinite().all(), name


@every
@pytest.mark.usefixtures("poisoned_memory")
def test_memory_that_nobody_has_written_has_no_influence(operator: Operator) -> None:
    poisoned = operator.gradients(*operator.inputs())
    torch.use_deterministic_algorithms(False)
    assert same(operator.gradients(*operator.inputs()), poisoned)


@every
def test_any_strides_have_the_same_result(operator: Operator) -> None:
    values, targets = operator.inputs()
    plain = operator.gradients(values, targets)
    for place, value in enumerate(values):
        back = tuple(reversed(range(value.dim())))
        turned = value.permute(back).contiguous().permute(back)
        sliced = torch.cat([value, value], -1)[..., : value.shape[-1]]
        for other in (turned, sliced, torch._neg_view(-value)):
            found = operator.gradients((*values[:place], other, *values[place + 1 :]), targets)
            for one, wanted in zip(found, plain, strict=True):
                torch.testing.assert_close(one, wanted, rtol=1e-12, atol=1e-12)
        one = value[:1].expand_as(value)
        expanded, copied = (
            operator.gradients((*values[:place], own, *values[place + 1 :]), targets)
            for own in (one, one.clone())
        )
        for left, right in zip(expanded, copied, strict=True):
            torch.testing.assert_close(left, right, rtol=1e-12, atol=1e-12)
    apart = tuple(torch.stack([target, target], -1)[..., 0] for target in targets)
    assert same(operator.gradients(values, apart), plain)


@every
def test_bits_do_not_depend_on_runs_or_threads(operator: Operator) -> None:
    threads, found = torch.get_num_threads(), []
    inputs = operator.inputs(torch.float32, **operator.several)
    try:
        for number in (1, 2, 3, 4, 2):
            torch.set_num_threads(number)
            found.append(operator.gradients(*inputs))
    finally:
        torch.set_num_threads(threads)
    assert all(same(found[0], other) for other in found[1:])


@differentiable
def test_single_precision_is_that_of_its_definition_to_five_digits(operator: Operator) -> None:
    values, targets = operator.inputs(torch.float32)
    exact = operator.gradients([value.double() for value in values], targets)
    for found, wanted in zip(operator.gradients(values, targets), exact, strict=True):
        torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)


@differentiable
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_has_a_wide_result(operator: Operator, dtype: torch.dtype) -> None:
    values, targets = operator.inputs(dtype)
    found, *gradients = operator.gradients(values, targets)
    wanted, *exact = operator.gradients([value.double() for value in values], targets)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), wanted, rtol=2e-2, atol=2e-2)
    for gradient, other in zip(gradients, exact, strict=True):
        assert gradient.dtype == dtype
        torch.testing.assert_close(gradient.double(), other, rtol=5e-2, atol=5e-2)


@differentiable
def test_gradients_are_those_of_finite_differences(operator: Operator) -> None:
    values, targets = operator.inputs()
    leaves = [value.requires_grad_() for value in values]

    def call(*own: Tensor) -> Tensor:
        return operator(*own, *targets)

    if operator.name != "consistency":  # whose teacher is held still
        assert torch.autograd.gradcheck(call, leaves, fast_mode=True)


@differentiable
def test_each_gradient_can_be_asked_for_alone(operator: Operator) -> None:
    values, targets = operator.inputs()
    _, *wanted = operator.gradients(values, targets)
    for place in range(len(values)):
        own = [value.detach().requires_grad_(at == place) for at, value in enumerate(values)]
        result = operator(*own, *targets)
        upstream = torch.linspace(1.0, 2.0, result.numel(), dtype=result.dtype)
        result.backward(upstream.reshape(result.shape))
        assert [leaf.grad is not None for leaf in own] == [at == place for at in range(len(own))]
        torch.testing.assert_close(own[place].grad, wanted[place], rtol=1e-12, atol=1e-12)
    with torch.inference_mode():
        assert not operator(*values, *targets).requires_grad


@differentiable
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # by torch.func itself
def test_second_and_forward_derivatives_are_refused(operator: Operator) -> None:
    values, targets = operator.inputs()
    leaves = [value.requires_grad_() for value in values]
    first = torch.autograd.grad(operator(*leaves, *targets).sum(), leaves, create_graph=True)
    with pytest.raises(RuntimeError, match=r"no autograd formula|is not implemented"):
        sum(gradient.square().sum() for gradient in first).backward()
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(values[0].detach(), torch.ones_like(values[0]))
        with pytest.raises(UnsupportedTrainingError, match="no forward-mode derivative"):
            operator(dual, *values[1:], *targets)
    with pytest.raises((RuntimeError, UnsupportedTrainingError)):
        torch.func.jvp(
            torch.vmap(lambda own: operator(own, *values[1:], *targets)),
            (torch.stack([values[0], values[0]]),),
            (torch.ones(2, *values[0].shape),),
        )


@ours
@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_under_vmap_it_runs_once_an_item(operator: Operator) -> None:
    (first, *rest), targets = operator.inputs()
    both = torch.stack([first, first.flip(0)])
    found = torch.vmap(lambda own: operator(own, *rest, *targets))(both)
    assert torch.equal(found, torch.stack([operator(own, *rest, *targets) for own in both]))


@every
def test_tensors_of_the_wrong_device_or_dtype_are_refused(operator: Operator) -> None:
    values, targets = operator.inputs()
    tensors = (*values, *targets)
    for place, tensor in enumerate(tensors):
        wrong = [tensor.to("meta")]
        wrong += [tensor.int()] if place >= len(values) else [tensor.long(), tensor.cfloat()]
        for other in wrong:
            with pytest.raises(DataError):
                operator(*tensors[:place], other, *tensors[place + 1 :])


@every
def test_it_is_planned_without_memory(operator: Operator) -> None:
    values, targets = operator.inputs()
    real = operator.gradients(values, targets)
    with FakeTensorMode() as mode:
        fake = [mode.from_tensor(tensor) for tensor in (*values, *targets)]
        runs = (
            [operator.gradients(fake[: len(values)], fake[len(values) :])]
            if (operator in OURS)
            else []
        )
    values, targets = (
        tuple(tensor.to("meta") for tensor in tensors) for tensors in (values, targets)
    )
    result = operator(*values, *targets)
    assert (result.shape, result.dtype) == (real[0].shape, real[0].dtype)
    for run in runs:
        for one, other in zip(run, real, strict=True):
            assert (one.shape, one.dtype, one.stride()) == (
                other.shape,
                other.dtype,
                other.stride(),
            )


@differentiable
def test_autocast_changes_no_bit(operator: Operator) -> None:
    values, targets = operator.inputs(torch.float32)
    plain = operator.gradients(values, targets)
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype):
            assert same(operator.gradients(values, targets), plain)


@ours
def test_it_compiles_and_exports_without_a_break_for_any_size(operator: Operator) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(operator.__call__, fullgraph=True, dynamic=True, backend="aot_eager")
    for seed, change in enumerate((0, 1, 4)):
        sizes = {name: size + change for name, size in operator.sizes.items()}
        values, targets = operator.inputs(torch.float32, seed, **sizes)
        wanted = operator.gradients(values, targets)
        assert same(operator.gradients(values, targets, compiled), wanted)

    class Module(torch.nn.Module):
        def forward(self, *tensors: Tensor) -> Tensor:
            return operator(*tensors)

    exported = torch.export.export(Module(), (*values, *targets))
    assert torch.equal(exported.module()(*values, *targets), wanted[0])


@ours
def test_the_operators_keep_the_rules_of_torch(operator: Operator) -> None:
    """What ran, forward and backward, is found by watching; then each is checked by torch."""
    values, targets = operator.inputs(torch.float32)
    with Recorder() as seen:
        operator.gradients(values, targets)
    assert len(seen.calls) == (2 if operator.differentiable else 1)
    (forward, arguments), *backward = seen.calls.items()
    leaves = tuple(
        argument.detach().requires_grad_(operator.differentiable)
        if isinstance(argument, Tensor) and argument.is_floating_point() and place < len(values)
        else argument
        for place, argument in enumerate(arguments)
    )
    results = torch.library.opcheck(forward, leaves)
    for function, own in backward:
        checks = ("test_schema", "test_autograd_registration", "test_faketensor")
        results |= torch.library.opcheck(function, own, test_utils=checks)
    assert set(results.values()) == {"SUCCESS"}
