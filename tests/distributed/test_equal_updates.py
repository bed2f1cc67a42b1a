"""Any number of processes makes the updates of one (G5, R4), under every strategy."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rank_tasks import distance, has_link, make, nothing, result, train, train_over_gloo, weights

from voicehub.specs.registry import get_training_spec as case_spec
from voicehub.testing.cases import load_case
from voicehub.testing.checks.processes import train_plans
from voicehub.testing.ranks import pool_of, run_on_ranks

#: Name to keywords of a run by ``world * accumulation`` micro-batches of 2 an update. 22 samples
#: are 11 micro-batches: with two ranks the last window leaves one of them without any.
RUNS: dict[str, dict[str, Any]] = {
    "plain sgd": {"recipe": "plain", "optim": "sgd", "learning_rate": 0.1},
    "plain adamw": {"recipe": "plain", "optim": "adamw", "learning_rate": 0.01},
    "plain float32": {
        "recipe": "plain", "optim": "sgd", "learning_rate": 1.0, "dtype": "float32",
    },
    "plain average": {"recipe": "plain", "ema_decay": 0.9, "weight_decay": 0.1},
    "gan": {"recipe": "gan", "optim": "adamw", "learning_rate": 0.01},
    "gan joint": {"recipe": "gan", "spec": {"sequential": False}, "optim": "sgd"},
    "hybrid": {"recipe": "hybrid", "optim": "adamw", "ema_decay": 0.9},
    "frozen": {
        "recipe": "plain",
        "freeze": [{"pattern": "hidden", "until_step": 2}, "output.bias"],
    },
    "lora": {"recipe": "lora", "optim": "adamw", "learning_rate": 0.05},
}  # fmt: skip
COMMON: dict[str, Any] = {
    "per_device_train_batch_size": 2,
    "num_train_epochs": 2,
    "max_steps": -1,
    "max_grad_norm": 0.3,
}


@pytest.fixture(scope="module")
def alone(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str, int], tuple[dict[str, Any], dict[str, Any]]]:
    """First weights and the ``result`` of one process, by run and micro-batches an update."""
    directory = tmp_path_factory.mktemp("alone")

    @functools.cache
    def run_alone(name: str, together: int) -> tuple[dict[str, Any], dict[str, Any]]:
        settings = {**COMMON, **RUNS[name], "gradient_accumulation_steps": together}
        trainer = make(directory=directory / f"{name} {together}", **settings)
        start = weights(trainer)
        trainer.train()
        return start, result(trainer)

    return run_alone


#: With four processes those in which what the ranks hold differs in kind.
OF_FOUR = ("plain adamw", "gan", "hybrid", "lora")


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
@pytest.mark.parametrize("world, accumulation", [(2, 1), (2, 2), (4, 1)])
def test_ranks_make_the_updates_of_one_process(
    world: int, accumulation: int, strategy: str, tmp_path: Path, alone: Any
) -> None:
    names = OF_FOUR if world == 4 else tuple(RUNS)
    shared = {**COMMON, "strategy": strategy, "gradient_accumulation_steps": accumulation}
    ranks = run_on_ranks(
        world, train, tmp_path / "ranks", [{**shared, **RUNS[name]} for name in names]
    )
    for number, name in enumerate(names):
        start, expected = alone(name, world * accumulation)
        limit = 1e-4 if RUNS[name].get("dtype") == "float32" else 1e-9
        for found in (rank[number] for rank in ranks):
            assert found["steps"] == expected["steps"], name
            assert distance(expected["weights"], found["weights"], start) <= limit, name
            logged = torch.tensor(found["losses"], dtype=torch.float64)
            wanted = torch.tensor(expected["losses"], dtype=torch.float64)
            torch.testing.assert_close(logged, wanted, rtol=limit, atol=limit)
            for parameter, average in expected["average"].items():
                torch.testing.assert_close(
                    found["average"][parameter], average, rtol=1e-9, atol=1e-12
                )
        first, *others = (rank[number]["weights"] for rank in ranks)
        for other in others:
            assert all(torch.equal(first[n], other[n]) for n in first), f"{name}: ranks differ"


@pytest.mark.skipif(sys.platform != "linux", reason="shared memory without a name needs Linux")
def test_sums_in_shared_memory_have_the_bits_of_messages(tmp_path: Path) -> None:
    """Of two ranks; of more, gloo adds in an order of its own."""
    names = ("gan", "plain float32", "frozen")
    runs = [{**COMMON, **RUNS[name], "strategy": "ddp"} for name in names]
    shared = run_on_ranks(2, train, tmp_path / "shared", runs)
    assert run_on_ranks(2, has_link) == [True, True]
    pool_of(2).outcomes(nothing)
    messages = pool_of(2).outcomes(train_over_gloo, tmp_path / "messages", runs)
    for rank in range(2):
        for one, other in zip(shared[rank], messages[rank], strict=True):
            assert one["losses"] == other["losses"]
            assert all(torch.equal(one["weights"][n], other["weights"][n]) for n in one["weights"])


def test_the_comparison_can_fail(tmp_path: Path) -> None:
    """Two ranks with twice the accumulation make another global batch."""
    run = {**COMMON, **RUNS["plain sgd"], "strategy": "ddp", "gradient_accumulation_steps": 2}
    found = run_on_ranks(2, train, tmp_path / "ranks", [run])[0][0]
    trainer = make(
        directory=tmp_path, **{**COMMON, **RUNS["plain sgd"], "gradient_accumulation_steps": 2}
    )
    start = weights(trainer)
    trainer.train()
    assert found["steps"] < trainer.state.global_step
    assert distance(weights(trainer), found["weights"], start) > 1e-3


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_batch_statistics_are_each_micro_batchs_own(strategy: str, tmp_path: Path) -> None:
    """So updates equal those of one process; running statistics are those of rank 0 everywhere."""
    run = {**COMMON, "recipe": "norm", "optim": "adamw", "weight_decay": 0.1, "size": 24}
    ranks = run_on_ranks(2, train, tmp_path / "ranks", [{**run, "strategy": strategy}])
    trainer = make(directory=tmp_path, **run, gradient_accumulation_steps=2)
    start = weights(trainer)
    trainer.train()
    first, second = ranks[0][0]["weights"], ranks[1][0]["weights"]
    learnt = {n: v for n, v in start.items() if not n.startswith("norm.running")}
    del learnt["norm.num_batches_tracked"]
    assert distance(weights(trainer), first, learnt) <= 1e-9
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["norm.running_mean"], start["norm.running_mean"])
    assert torch.equal(first["never_used.weight"], start["never_used.weight"])


@pytest.mark.parametrize("model_type", ["ctc-logmel", "example-denoiser"])
def test_families_train_shared_out(model_type: str, tmp_path: Path) -> None:
    """The kit's ``two_processes`` is under ddp; under fsdp the weights are the same."""
    case = load_case(model_type)
    runs = [("adamw", torch.float64, 1e-2)]
    found = {
        strategy: run_on_ranks(
            2, train_plans, case, case_spec(model_type), tmp_path / strategy, runs, strategy
        )[0][0]
        for strategy in ("ddp", "fsdp")
    }
    for name, value in found["ddp"].items():
        torch.testing.assert_close(found["fsdp"][name], value, rtol=1e-9, atol=1e-12)
