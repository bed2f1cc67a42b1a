"""The registry of strategies, and what the single-process one does."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from voicehub.errors import ConfigurationError
from voicehub.strategies import registry
from voicehub.strategies.single import SingleProcessStrategy, move
from voicehub.trainer.arguments import TrainingArguments

ARGS = TrainingArguments(use_cpu=True)


class Custom(SingleProcessStrategy):
    name = "custom"


@pytest.fixture
def custom() -> Iterator[None]:
    registry.register_training_strategy("custom", Custom)
    yield
    registry.unregister_training_strategy("custom")


def test_register_find_list_and_remove(custom: None) -> None:
    assert registry.get_training_strategy("custom") is Custom
    assert {"custom", "torch"} <= set(registry.list_training_strategies())
    with pytest.raises(ValueError, match="exists already"):
        registry.register_training_strategy("custom", Custom)
    registry.register_training_strategy("custom", Custom, exist_ok=True)


def test_built_in_strategies_stay() -> None:
    with pytest.raises(ValueError, match="exists already"):
        registry.register_training_strategy("torch", Custom, exist_ok=True)
    with pytest.raises(ValueError, match="built in"):
        registry.unregister_training_strategy("torch")


def test_an_unknown_name_lists_what_there_is(custom: None) -> None:
    with pytest.raises(KeyError, match=r"torch.*Did you mean 'custom'"):
        registry.get_training_strategy("custm")


@pytest.mark.parametrize("given", [None, "torch", SingleProcessStrategy(ARGS)])
def test_name_instance_or_nothing(given: Any) -> None:
    strategy = registry.resolve_strategy(given, ARGS)
    assert isinstance(strategy, SingleProcessStrategy)
    assert strategy.resume_signature() == {"name": "torch", "world_size": 1}


def test_another_type_is_refused() -> None:
    with pytest.raises(TypeError, match="name or a strategy"):
        registry.resolve_strategy(3, ARGS)  # type: ignore[arg-type]


def test_fp16_needs_cuda() -> None:
    with pytest.raises(ConfigurationError, match="bf16"):
        SingleProcessStrategy(TrainingArguments(use_cpu=True, fp16=True))


def test_bf16_autocasts_on_the_cpu() -> None:
    strategy = SingleProcessStrategy(TrainingArguments(use_cpu=True, bf16=True))
    layer = torch.nn.Linear(2, 2)
    with strategy.autocast_context():
        assert layer(torch.ones(1, 2)).dtype is torch.bfloat16
    with SingleProcessStrategy(ARGS).autocast_context():
        assert layer(torch.ones(1, 2)).dtype is torch.float32


def test_clipping_leaves_small_gradients_alone() -> None:
    strategy = SingleProcessStrategy(ARGS)
    grads = [torch.tensor([3.0, 4.0])]
    strategy.clip_grad_norm(grads, 5.0, 10.0)
    assert torch.equal(grads[0], torch.tensor([3.0, 4.0]))
    strategy.clip_grad_norm(grads, 5.0, 1.0)
    assert float(grads[0].norm()) == pytest.approx(1.0, rel=1e-5)


def test_moving_keeps_structure_and_what_is_no_tensor() -> None:
    pair = namedtuple("pair", "a b")
    value = {"x": [torch.ones(1), "text"], "y": (pair(torch.ones(2), None),)}
    moved = move(value, "meta")
    assert moved["x"][0].device.type == "meta" and moved["x"][1] == "text"
    assert isinstance(moved["y"][0], pair) and moved["y"][0].a.device.type == "meta"
    assert SingleProcessStrategy(ARGS).prepare_input(value, device="cpu") is value
