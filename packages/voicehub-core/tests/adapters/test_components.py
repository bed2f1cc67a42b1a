"""Declared paths resolve or are refused by name; the root has stable keys."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from torch import nn

from voicehub.adapters.components import build_root, walk
from voicehub.specs.phase import TrainingPhaseSpec


def test_a_single_root_is_the_component_itself():
    model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    assert build_root({"model": model, "model.0": model[0]}) is model


def test_several_roots_have_names_that_follow_from_their_paths():
    first, second = nn.Sequential(nn.Linear(1, 1)), nn.Linear(1, 1)
    root = build_root({"model.net": first, "model.net.0": first[0], "discriminator": second})
    assert list(root.state_dict()) == [
        "model/net.0.weight",
        "model/net.0.bias",
        "discriminator.weight",
        "discriminator.bias",
    ]


def test_one_module_under_two_paths_is_one_root():
    model = nn.Linear(1, 1)
    assert build_root({"a": model, "b": model}) is model


def test_walk_follows_attributes_keys_and_positions():
    holder = SimpleNamespace(
        table={"net": [nn.Linear(1, 1)]},
        blocks=nn.ModuleDict({"a": nn.Sequential(nn.Linear(1, 1))}),
    )
    assert walk(holder, "table.net.0") is holder.table["net"][0]
    assert walk(holder, "blocks.a.0") is holder.blocks["a"][0]
    with pytest.raises(AttributeError):
        walk(holder, "nothing")


def test_the_first_module_path_that_trains_is_the_primary(make_adapter, regressor, run, batch):
    frozen = nn.Linear(1, 1).requires_grad_(False)
    adapter = make_adapter(
        {"frozen": frozen, "net": regressor}, module_paths=("missing", "frozen", "net")
    )
    assert adapter.module is regressor
    assert run(adapter, "default", batch).loss.requires_grad


def test_discovery_is_disabled(make_adapter, regressor):
    with pytest.raises(TypeError, match="discovery is disabled"):
        make_adapter({"somewhere_else": regressor})


@pytest.mark.parametrize(
    "phase",
    [
        TrainingPhaseSpec("main", component_paths=("model.typo",)),
        TrainingPhaseSpec("main", frozen_component_paths=("model.typo",)),
        TrainingPhaseSpec("main", forward_component="model.typo"),
    ],
)
def test_a_declared_path_that_does_not_resolve_is_an_error(make_adapter, regressor, phase):
    with pytest.raises(TypeError, match=r"declared path 'model\.typo' of phase 'main'"):
        make_adapter({"model": regressor}, (phase,))


def test_a_component_that_is_no_module_is_an_error(make_adapter, regressor):
    regressor.note = "text"
    with pytest.raises(TypeError, match=r"is a str, not a torch\.nn\.Module"):
        make_adapter({"model": regressor}, component_paths=("model.note",))


def test_a_forward_method_that_does_not_exist_is_an_error(make_adapter, regressor):
    phase = TrainingPhaseSpec("main", forward_method="forwrad")
    with pytest.raises(TypeError, match="calls 'forwrad'"):
        make_adapter({"model": regressor}, (phase,))


def test_another_component_and_method_can_be_called(make_adapter, regressor, run, batch):
    class Recipe:
        def objective(self, x, labels):
            return regressor(x, labels)["loss"] * 2

    phase = TrainingPhaseSpec("main", forward_component="recipe", forward_method="objective")
    adapter = make_adapter({"model": regressor, "recipe": Recipe()}, (phase,))
    regressor.eval()
    expected = regressor(**batch)["loss"] * 2
    assert run(adapter, "main", batch).loss == expected


def test_forward_hooks_of_the_module_run(make_adapter, regressor, run, batch):
    seen = []
    regressor.register_forward_hook(lambda *_: seen.append(1))
    run(make_adapter({"model": regressor}), "default", batch)
    assert seen == [1]
