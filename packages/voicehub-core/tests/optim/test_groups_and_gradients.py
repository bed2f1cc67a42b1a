"""Decay groups, norms, and the bundle of optimizers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from voicehub.errors import CheckpointMismatchError
from voicehub.optim.bundle import OptimizerBundle
from voicehub.optim.gradients import GradientStash, scale_, total_norm
from voicehub.optim.groups import decay_groups, undecayed


class RMSNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, 2))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.norm = RMSNorm()
        self.layer = nn.Linear(4, 4)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.embedding.weight


def test_norms_biases_and_tied_embeddings_do_not_decay() -> None:
    model = Tied()
    named = list(model.named_parameters())
    groups = decay_groups(named, learning_rate=1.0, weight_decay=0.1, exempt=undecayed([model]))
    by_name = {id(p): n for n, p in named}
    members = {g["name"]: {by_name[id(p)] for p in g["params"]} for g in groups}
    assert members == {
        "decay": {"layer.weight"},
        "no_decay": {"embedding.weight", "norm.weight", "layer.bias"},
    }
    assert [g["weight_decay"] for g in groups] == [0.1, 0.0]


def test_without_decay_there_is_one_group() -> None:
    model = Tied()
    groups = decay_groups(
        list(model.named_parameters()), learning_rate=1.0, weight_decay=0.0, exempt=set()
    )
    assert len(groups) == 1
    assert len(groups[0]["params"]) == 4


def test_total_norm_is_the_euclidean_norm_over_all() -> None:
    torch.manual_seed(0)
    grads = [torch.randn(3, 4, dtype=torch.float64), torch.randn(7, dtype=torch.float64)]
    expected = torch.cat([g.flatten() for g in grads]).norm()
    torch.testing.assert_close(total_norm(grads), expected)


def test_total_norm_of_mixed_types_and_of_nothing() -> None:
    grads = [torch.full((4,), 2.0), torch.full((1,), 3.0, dtype=torch.bfloat16)]
    assert float(total_norm(grads)) == pytest.approx(5.0)
    assert float(total_norm([])) == 0.0


def test_total_norm_of_a_sparse_gradient() -> None:
    embedding = nn.Embedding(4, 2, sparse=True)
    embedding(torch.tensor([1, 1])).sum().backward()
    assert embedding.weight.grad is not None
    assert float(total_norm([embedding.weight.grad])) == pytest.approx((2 * 4.0) ** 0.5)


def test_nan_and_inf_show_in_the_norm() -> None:
    assert not torch.isfinite(total_norm([torch.tensor([1.0, float("nan")])]))
    assert not torch.isfinite(total_norm([torch.tensor([1.0, float("inf")])]))


def test_scale_in_place() -> None:
    grads = [torch.ones(2), torch.ones(3)]
    scale_(grads, 0.5)
    scale_([], 0.5)
    assert all(torch.equal(g, torch.full_like(g, 0.5)) for g in grads)


def test_stash_keeps_two_sums_apart() -> None:
    parameter, untouched = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))
    parameter.grad, untouched.grad = torch.ones(2), torch.ones(1)
    stash = GradientStash([parameter, untouched])
    assert parameter.grad is None
    parameter.grad = torch.full((2,), 10.0)
    stash.add_back()
    assert torch.equal(parameter.grad, torch.full((2,), 11.0))
    assert torch.equal(untouched.grad, torch.ones(1))


def bundle() -> tuple[OptimizerBundle, dict[str, nn.Parameter]]:
    parameters = {name: nn.Parameter(torch.zeros(1)) for name in ("a", "b")}
    optimizers = {name: torch.optim.SGD([p], lr=1.0) for name, p in parameters.items()}
    return OptimizerBundle(optimizers), parameters


def test_only_named_routes_step_and_clear() -> None:
    optimizers, parameters = bundle()
    for parameter in parameters.values():
        parameter.grad = torch.ones(1)
    optimizers.step(["a"])
    optimizers.zero_grad(["a"])
    assert parameters["a"].item() == -1.0 and parameters["a"].grad is None
    assert parameters["b"].item() == 0.0 and parameters["b"].grad is not None


def test_state_of_other_routes_is_refused_before_anything_changes() -> None:
    optimizers, _ = bundle()
    state = optimizers.state_dict()
    state["c"] = state.pop("b")
    with pytest.raises(CheckpointMismatchError, match="topology"):
        optimizers.load_state_dict(state)
