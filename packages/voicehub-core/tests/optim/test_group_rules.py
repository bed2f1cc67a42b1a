"""Rates and decay by pattern."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from voicehub.errors import ConfigurationError
from voicehub.optim.group_rules import GroupRules, layerwise_decay
from voicehub.optim.groups import decay_groups, undecayed
from voicehub.optim.rules import ParamGroupRule


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2), nn.Linear(2, 2))
        self.head = nn.Linear(2, 1)


def split(model: nn.Module, rules: list[ParamGroupRule], decay: float = 0.01) -> list[Any]:
    exempt = undecayed([model])
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    groups = decay_groups(named, learning_rate=1e-3, weight_decay=decay, exempt=exempt)
    applied = GroupRules(model, rules, exempt)
    made = applied.split(groups)
    applied.check_used()
    names = {id(p): n for n, p in model.named_parameters()}
    return [
        (g["name"], g["lr"], g["weight_decay"], [names[id(p)] for p in g["params"]]) for g in made
    ]


def test_the_first_match_wins_and_the_rest_is_default() -> None:
    rules = [
        ParamGroupRule(pattern="encoder.0", learning_rate=1e-5, weight_decay=0.5),
        ParamGroupRule(pattern="encoder", lr_scale=0.1),
    ]
    assert split(Model(), rules) == [
        ("decay", 1e-3, 0.01, ["head.weight"]),
        ("no_decay", 1e-3, 0.0, ["head.bias"]),
        ("encoder.0", 1e-5, 0.5, ["encoder.0.weight"]),
        ("encoder.0 (no decay)", 1e-5, 0.0, ["encoder.0.bias"]),
        ("encoder", 1e-4, 0.01, ["encoder.2.weight"]),
        ("encoder (no decay)", 1e-4, 0.0, ["encoder.1.weight", "encoder.1.bias", "encoder.2.bias"]),
    ]


def test_a_rule_may_give_decay_to_a_run_that_has_none() -> None:
    made = split(Model(), [ParamGroupRule(pattern="head", weight_decay=0.1)], decay=0.0)
    assert [(name, decay, names) for name, _, decay, names in made[1:]] == [
        ("head", 0.1, ["head.weight"]),
        ("head (no decay)", 0.0, ["head.bias"]),
    ]


def test_a_pattern_without_a_match_names_the_nearest() -> None:
    with pytest.raises(ConfigurationError, match="'encodr' matches no .*Did you mean 'encoder'"):
        split(Model(), [ParamGroupRule(pattern="encodr", lr_scale=0.1)])


def test_a_rule_in_the_shadow_of_an_earlier_one_is_refused() -> None:
    rules = [
        ParamGroupRule(pattern="encoder", lr_scale=0.1),
        ParamGroupRule(pattern="encoder.0", lr_scale=0.5),
    ]
    with pytest.raises(ConfigurationError, match=r"'encoder\.0' found nothing left"):
        split(Model(), rules)


def test_a_rule_for_what_is_frozen_is_refused() -> None:
    model = Model()
    model.encoder.requires_grad_(False)
    with pytest.raises(ConfigurationError, match="frozen"):
        split(model, [ParamGroupRule(pattern="encoder", lr_scale=0.1)])


def test_a_tied_parameter_answers_to_both_names() -> None:
    model = Model()
    model.tied = model.head
    made = split(model, [ParamGroupRule(pattern="tied", lr_scale=0.5)], decay=0.0)
    assert made[-1][3] == ["head.weight", "head.bias"]


def test_layerwise_decay_falls_from_the_last_layer() -> None:
    rules = layerwise_decay(Model(), "encoder", 0.5)
    assert [(r.pattern, r.lr_scale) for r in rules] == [
        ("encoder.0", 0.25),
        ("encoder.1", 0.5),
        ("encoder.2", 1.0),
    ]
    made = split(Model(), rules, decay=0.0)
    assert [rate for _, rate, *_ in made] == pytest.approx([1e-3, 2.5e-4, 5e-4, 1e-3])


@pytest.mark.parametrize(
    "settings", [{}, {"learning_rate": 1e-3, "lr_scale": 0.1}, {"lr_scale": -1.0}]
)
def test_rules_that_say_nothing_or_too_much(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="param_groups|greater than or equal"):
        ParamGroupRule(pattern="x", **settings)  # type: ignore[arg-type]


def test_torch_takes_the_groups() -> None:
    model = Model()
    applied = GroupRules(model, [ParamGroupRule(pattern="head", lr_scale=2.0)], set())
    groups = applied.split([{"params": list(model.parameters()), "lr": 1.0, "weight_decay": 0.0}])
    optimizer = torch.optim.AdamW(groups)
    assert [g["lr"] for g in optimizer.param_groups] == [1.0, 2.0]
