"""Discriminative learning rates and decay: rules over names split the groups of every route."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch import nn

from voicehub.adapters.name_patterns import NamedGraph
from voicehub.errors import ConfigurationError
from voicehub.optim.groups import decays
from voicehub.optim.rules import ParamGroupRule

_SETTING = "param_groups"


class GroupRules:
    """Applies ``TrainingArguments.param_groups`` to the optimizer groups of a model.

    Args:
        root: the adapter's module; patterns are over its names.
        rules: the first that matches a parameter decides.
        exempt: identities of parameters that never decay, of ``undecayed``.

    Raises:
        ConfigurationError: a pattern matches nothing.
    """

    def __init__(self, root: nn.Module, rules: Sequence[ParamGroupRule], exempt: set[int]) -> None:
        self.rules = rules
        self._exempt = exempt
        self._owner: dict[nn.Parameter, int] = {}
        self._names = {p: n for n, p in root.named_parameters()} if rules else {}
        self._used: set[int] = set()
        graph = NamedGraph(root) if rules else None
        for index, rule in enumerate(rules):
            assert graph is not None
            for parameter in graph.match(rule.pattern, _SETTING).parameters.values():
                self._owner.setdefault(parameter, index)

    def split(self, groups: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """The groups of one route, those of no rule first, then those of each rule in order."""
        groups = list(groups)
        if not self.rules:
            return groups
        left = [
            {**group, "params": [p for p in group["params"] if p not in self._owner]}
            for group in groups
        ]
        made = [part for index in range(len(self.rules)) for part in self._of_rule(index, groups)]
        return [group for group in left if group["params"]] + made

    def _of_rule(self, index: int, groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
        rule, made = self.rules[index], []
        for group in groups:
            taken = [p for p in group["params"] if self._owner.get(p) == index]
            if not taken:
                continue
            self._used.add(index)
            rate = group["lr"] if rule.learning_rate is None else rule.learning_rate
            if rule.lr_scale is not None:
                rate *= rule.lr_scale
            for decay, parameters in self._by_decay(rule, group, taken):
                name = rule.pattern if decay else f"{rule.pattern} (no decay)"
                own = {"params": parameters, "lr": rate, "weight_decay": decay, "name": name}
                made.append({**group, **own})
        return made

    def _by_decay(
        self, rule: ParamGroupRule, group: dict[str, Any], taken: list[nn.Parameter]
    ) -> list[tuple[float, list[nn.Parameter]]]:
        before = float(group.get("weight_decay", 0.0))
        if rule.weight_decay is None:
            return [(before, taken)]
        matrices = [p for p in taken if self._decays(p)]
        others = [p for p in taken if not self._decays(p)]
        parts = [(rule.weight_decay, matrices), (before, others)]
        return [part for part in parts if part[1]]

    def _decays(self, parameter: nn.Parameter) -> bool:
        return decays(self._names[parameter], parameter, self._exempt)

    def check_used(self) -> None:
        """Refuse rules that took no trainable parameter, once all routes were split.

        Raises:
            ConfigurationError: names the rules.
        """
        idle = [rule.pattern for i, rule in enumerate(self.rules) if i not in self._used]
        if idle:
            raise ConfigurationError(
                f"{_SETTING}: {', '.join(map(repr, idle))} found nothing left to set: what the "
                "pattern matches is frozen, or an earlier rule has taken it (the first match "
                "decides). Put the narrower rule first, or leave this one out."
            )


def layerwise_decay(module: nn.Module, path: str, factor: float) -> list[ParamGroupRule]:
    """Rules that lower the rate from the last of a stack of layers to the first.

    The last layer keeps its rate; each one below it is multiplied by ``factor`` once more.

    Args:
        module: the model, or the adapter's module.
        path: of the ``nn.ModuleList`` or ``nn.Sequential``, for example ``encoder.layers``.
        factor: in (0, 1].
    """
    layers = [name for name, _ in module.get_submodule(path).named_children()]
    return [
        ParamGroupRule(pattern=f"{path}.{name}", lr_scale=factor**above)
        for above, name in zip(range(len(layers) - 1, -1, -1), layers, strict=True)
    ]
