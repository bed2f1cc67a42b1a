"""On one process and on two: found by name, owning every step, making equal updates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate_tasks import agree, forget_accelerate, train
from rank_tasks import distance, make, result, weights
from recipes import Frames, arguments, trainer_for
from voicehub_accelerate.strategy import AccelerateStrategy

from voicehub.errors import ConfigurationError
from voicehub.testing.ranks import RankPool
from voicehub.trainer.arguments import TrainingArguments
from voicehub.training.strategy import get_training_strategy, list_training_strategies

#: G1: what a strategy owns.
OWNED = (
    *("prepare_device", "prepare_model", "prepare_training_adapter", "prepare_optimization"),
    *("prepare_dataloader", "prepare_input", "autocast_context", "create_grad_scaler"),
    *("backward", "clip_grad_norm", "optimizer_step", "scheduler_step", "zero_grad"),
    *("normalize_gradients", "no_sync", "gather_for_metrics", "execute_training_phase"),
    *("execute_prediction_phase", "unwrap_model", "state_dict", "load_state_dict"),
    "resume_signature",
)
COMMON: dict[str, Any] = {
    "per_device_train_batch_size": 2,
    "num_train_epochs": 2,
    "max_steps": -1,
    "max_grad_norm": 0.3,
}
RUNS: dict[str, dict[str, Any]] = {
    "plain sgd": {"recipe": "plain", "optim": "sgd", "learning_rate": 0.1},
    "plain adamw": {"recipe": "plain", "optim": "adamw", "learning_rate": 0.01},
    "plain float32": {
        "recipe": "plain", "optim": "sgd", "learning_rate": 1.0, "dtype": "float32",
    },
    "gan": {"recipe": "gan", "optim": "adamw", "learning_rate": 0.01},
    "hybrid": {"recipe": "hybrid", "optim": "adamw", "ema_decay": 0.9},
    "lora": {"recipe": "lora", "optim": "adamw", "learning_rate": 0.05},
    "norm": {"recipe": "norm", "optim": "adamw", "size": 24},
}  # fmt: skip


@pytest.fixture(scope="module")
def pool() -> Iterator[RankPool]:
    """Ranks of these tests alone: Accelerate joins them in its own way, and for good."""
    ranks = RankPool(2)
    yield ranks
    ranks.close()


@pytest.fixture(autouse=True)
def fresh_accelerate() -> Iterator[None]:
    forget_accelerate()
    yield
    forget_accelerate()


def learnt(start: dict[str, Any]) -> dict[str, Any]:
    """Without what is counted and not learnt."""
    return {n: v for n, v in start.items() if "running" not in n and "num_batches" not in n}


def test_it_is_found_by_its_name() -> None:
    assert "accelerate" in list_training_strategies()
    assert get_training_strategy("accelerate") is AccelerateStrategy


class Recording(AccelerateStrategy):
    """Writes down which of its methods are called."""

    def __init__(self, args: Any) -> None:
        self.calls: list[str] = []
        super().__init__(args)

    def __getattribute__(self, name: str) -> Any:
        if name in OWNED:
            object.__getattribute__(self, "calls").append(name)
        return super().__getattribute__(name)


def test_G1_it_owns_every_step_of_execution(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "max_steps": 2,
        "gradient_accumulation_steps": 2,
        "save_strategy": "steps",
        "save_steps": 1,
        "max_grad_norm": 0.01,
    }
    strategy = Recording(arguments(tmp_path, **settings))
    options = {"training_strategy": strategy, "eval_dataset": Frames(4)}
    trainer = trainer_for("plain", tmp_path, options=options, **settings)
    trainer.train()
    trainer.evaluate()
    trainer = trainer_for("plain", tmp_path, options=options, **settings)
    (tmp_path / "checkpoint-2/.complete").unlink()
    trainer.train(resume_from_checkpoint=True)
    # no_sync is for several processes, unwrap_model for callers outside of the Trainer.
    assert {*strategy.calls, "no_sync", "unwrap_model"} == set(OWNED)
    assert strategy.resume_signature() == {"name": "accelerate", "world_size": 1}


@pytest.mark.parametrize("recipe", ["plain", "gan", "hybrid"])
def test_one_process_is_bit_equal_to_the_built_in_strategy(recipe: str, tmp_path: Path) -> None:
    found = []
    for strategy in ("torch", "accelerate"):
        trainer = make(recipe, tmp_path / strategy, **COMMON, strategy=strategy)
        trainer.train()
        found.append(result(trainer))
    assert found[0]["losses"] == found[1]["losses"]
    assert all(torch.equal(v, found[1]["weights"][n]) for n, v in found[0]["weights"].items())


def test_G5_two_processes_make_the_updates_of_one(pool: RankPool, tmp_path: Path) -> None:
    accumulation = 2  # with 11 micro-batches the last window is one of one rank alone
    several = {"strategy": "accelerate", "gradient_accumulation_steps": accumulation}
    runs = [{**COMMON, **several, **run} for run in RUNS.values()]
    ranks = pool.run(train, tmp_path / "ranks", runs)
    for number, (name, run) in enumerate(RUNS.items()):
        together = 2 * accumulation
        alone = {**COMMON, **run, "gradient_accumulation_steps": together}
        trainer = make(directory=tmp_path / name, **alone)
        start = weights(trainer)
        trainer.train()
        expected = result(trainer)
        limit = 1e-4 if run.get("dtype") == "float32" else 1e-9
        first, second = (rank[number] for rank in ranks)
        assert (first["rank"], second["rank"]) == ((0, 2), (1, 2))
        assert first["steps"] == expected["steps"], name
        for found in (first, second):
            assert distance(expected["weights"], found["weights"], learnt(start)) <= limit, name
        for parameter, tensor in first["weights"].items():
            assert torch.equal(tensor, second["weights"][parameter]), f"{name}: {parameter}"
        for parameter, average in expected["average"].items():
            torch.testing.assert_close(first["average"][parameter], average, rtol=1e-9, atol=1e-12)


def test_decisions_are_joint_and_a_failure_of_rank_0_reaches_all(pool: RankPool) -> None:
    first, second = pool.run(agree)
    assert first["any"] == second["any"] == [True, False]
    assert first["sum"] == second["sum"] == pytest.approx(0.3)
    assert first["rows"] == second["rows"] == ["0a", "0b", "1a", "1b"]
    assert first["primary"] == second["primary"] == {"rank": 0}
    assert [text.split(":")[0] for text in first["failures"]] == ["ZeroDivisionError"] * 2
    assert second["failures"] == [
        "OtherRankError: rank 0 failed in the cache: ZeroDivisionError: integer division or modulo "
        "by zero",
        "OtherRankError: rank 0 failed in the data: ZeroDivisionError: integer division or modulo "
        "by zero",
    ]


def test_a_resumed_run_is_the_same_run(tmp_path: Path) -> None:
    settings = {**COMMON, "strategy": "accelerate", "max_steps": 6, "save_steps": 3}
    settings["save_strategy"] = "steps"
    whole = make("gan", tmp_path / "whole", **settings)
    whole.train()
    make("gan", tmp_path / "cut", **settings).train()
    again = make("gan", tmp_path / "cut", **settings)
    again.train(resume_from_checkpoint=str(tmp_path / "cut/checkpoint-3"))
    assert all(torch.equal(v, weights(again)[n]) for n, v in weights(whole).items())


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"ddp_timeout": 7.0}, "ddp_timeout is not read"),
        ({"fp16": True}, "fp16=True needs a CUDA device"),
    ],
)
def test_what_it_cannot_do_is_refused(settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        AccelerateStrategy(TrainingArguments(use_cpu=True, strategy="accelerate", **settings))


def test_another_setup_in_the_same_process_is_refused() -> None:
    AccelerateStrategy(TrainingArguments(use_cpu=True))
    with pytest.raises(ConfigurationError, match="Accelerate cannot be set up"):
        AccelerateStrategy(TrainingArguments(use_cpu=True, bf16=True))


def test_a_sharding_configuration_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from accelerate.utils import DistributedType

    monkeypatch.setattr(
        "voicehub_accelerate.strategy._DATA_PARALLEL", frozenset({DistributedType.DEEPSPEED})
    )
    with pytest.raises(ConfigurationError, match=r"set up for NO\. Use training\.strategy=fsdp"):
        AccelerateStrategy(TrainingArguments(use_cpu=True))


def test_bf16_computes_in_bf16() -> None:
    strategy = AccelerateStrategy(TrainingArguments(use_cpu=True, bf16=True))
    layer = torch.nn.Linear(2, 2)
    with strategy.autocast_context():
        assert layer(torch.ones(1, 2)).dtype is torch.bfloat16
    assert strategy.create_grad_scaler() is None
