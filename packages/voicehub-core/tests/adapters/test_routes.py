"""Every trainable parameter has exactly one owner; anything else is an error at set-up."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from voicehub.adapters.routes import check_optimizers
from voicehub.specs.phase import TrainingPhaseSpec


class TwoParts(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(2, 2), nn.Linear(2, 1)

    def forward(self, x):
        return self.right(self.left(x)).mean()


def phase(name, paths, optimizers, **fields):
    return TrainingPhaseSpec(name, component_paths=paths, optimizer_names=optimizers, **fields)


def names(adapter):
    return {route: [name for name, _ in named] for route, named in adapter.routes.items()}


def test_without_names_there_is_one_default_route(make_adapter):
    adapter = make_adapter({"model": TwoParts()})
    assert names(adapter) == {"default": ["left.weight", "left.bias", "right.weight", "right.bias"]}


def test_one_name_owns_all_components(make_adapter):
    one = phase("main", ("model.left", "model.right"), ("all",))
    assert list(names(make_adapter({"model": TwoParts()}, (one,)))) == ["all"]


def test_names_map_one_to_one_onto_paths(make_adapter):
    one = phase("main", ("model.left", "model.right"), ("l", "r"))
    assert names(make_adapter({"model": TwoParts()}, (one,))) == {
        "l": ["left.weight", "left.bias"],
        "r": ["right.weight", "right.bias"],
    }


def test_a_parameter_under_two_names_names_it_and_both_routes(make_adapter):
    phases = (phase("a", ("model",), ("x",)), phase("b", ("model.right",), ("y",)))
    with pytest.raises(ValueError, match=r"'right\.weight' is routed to both 'x' and 'y'"):
        make_adapter({"model": TwoParts()}, phases)


def test_a_tied_parameter_under_two_names_is_found(make_adapter):
    model = TwoParts()
    model.left = nn.Linear(2, 1)
    model.right.weight = model.left.weight
    phases = (phase("main", ("model.left", "model.right"), ("x", "y")),)
    with pytest.raises(ValueError, match=r"'left\.weight' is routed to both 'x' and 'y'"):
        make_adapter({"model": model}, phases)


def test_two_phases_may_share_a_route(make_adapter):
    phases = (phase("a", ("model",), ("x",)), phase("b", ("model.right",), ("x",)))
    assert len(names(make_adapter({"model": TwoParts()}, phases))["x"]) == 4


def test_freezing_in_the_other_phase_settles_ownership(make_adapter):
    phases = (
        phase("a", ("model",), ("x",), frozen_component_paths=("model.right",)),
        phase("b", ("model.right",), ("y",)),
    )
    assert names(make_adapter({"model": TwoParts()}, phases)) == {
        "x": ["left.weight", "left.bias"],
        "y": ["right.weight", "right.bias"],
    }


@pytest.mark.parametrize("optimizers", [("x",), ()])
def test_a_parameter_without_owner_is_an_error_that_says_how_to_freeze(make_adapter, optimizers):
    with pytest.raises(ValueError, match=r"'right\.weight'.*owned by no phase.*requires_grad_"):
        make_adapter({"model": TwoParts()}, (phase("a", ("model.left",), optimizers),))


def test_a_component_frozen_only_where_it_does_not_train_is_still_unowned(make_adapter):
    """A freeze in the discriminator's phase is no excuse for never training the generator."""
    phases = (
        phase("a", ("model.left",), ("x",), frozen_component_paths=("model.right",)),
        phase("b", ("other",), ("y",)),
    )
    with pytest.raises(ValueError, match="owned by no phase"):
        make_adapter({"model": TwoParts(), "other": nn.Linear(1, 1)}, phases)


def test_frozen_parameters_need_no_owner(make_adapter):
    model = TwoParts()
    model.right.requires_grad_(False)
    adapter = make_adapter({"model": model}, (phase("a", ("model.left",), ("x",)),))
    assert names(adapter) == {"x": ["left.weight", "left.bias"]}


def test_nothing_to_train_is_an_error(make_adapter):
    model = TwoParts().requires_grad_(False)
    with pytest.raises(ValueError, match="Nothing trains"):
        make_adapter({"model": model}, (phase("a", ("model",), ("x",), forward_component="model"),))


def test_a_route_without_trainable_parameter_is_an_error(make_adapter):
    model = TwoParts()
    model.right.requires_grad_(False)
    phases = (phase("a", ("model.left", "model.right"), ("x", "y")),)
    with pytest.raises(ValueError, match="Route 'y' owns no trainable parameter"):
        make_adapter({"model": model}, phases)


@pytest.fixture
def routed(make_adapter):
    one = phase("main", ("model.left", "model.right"), ("l", "r"))
    return make_adapter({"model": TwoParts()}, (one,))


def sgd(parameters):
    return torch.optim.SGD(list(parameters), lr=0.1)


def test_user_made_optimizers_that_fit_are_accepted(routed):
    model = routed.model.model
    check_optimizers(
        {"l": sgd(model.left.parameters()), "r": sgd(model.right.parameters())}, routed.routes
    )


def test_user_made_optimizers_are_checked(routed):
    model = routed.model.model
    left, right = list(model.left.parameters()), list(model.right.parameters())
    cases = [
        ({"l": sgd(left)}, "do not match the recipe's routes"),
        ({"l": sgd(left), "r": sgd([*right, nn.Parameter(torch.zeros(3))])}, "foreign to the mod"),
        ({"l": sgd(left), "r": sgd([*right, left[0]])}, r"'left\.weight' is in the optimizers of"),
        ({"l": sgd(right), "r": sgd(left)}, r"belongs to route 'r' but is in the optimizer of 'l'"),
        ({"l": sgd(left), "r": sgd(right[:1])}, r"'right\.bias' would never train"),
    ]
    for optimizers, message in cases:
        with pytest.raises(ValueError, match=message):
            check_optimizers(optimizers, routed.routes)
