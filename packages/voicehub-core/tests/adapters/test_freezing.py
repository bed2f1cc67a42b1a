"""Freeze boundaries hold in the phase, reach through to inputs, and are restored."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from voicehub.adapters.base import TrainingAdapter
from voicehub.adapters.freezing import frozen_modules, frozen_parameters
from voicehub.specs.phase import TrainingPhaseSpec


def gan_phases(**generator):
    return (
        TrainingPhaseSpec(
            "discriminator",
            component_paths=("discriminator",),
            optimizer_names=("d",),
            kind="discriminator",
        ),
        TrainingPhaseSpec(
            "generator",
            component_paths=("generator",),
            optimizer_names=("g",),
            kind="generator",
            **generator,
        ),
    )


class GanAdapter(TrainingAdapter):
    """Both phases run through both networks; nothing is detached by hand."""

    def training_step_loss(self, inputs, phase):
        made = self.model.generator(inputs["x"])
        score = self.model.discriminator(made).mean()
        return score if phase.name == "discriminator" else -score


def gan(make_adapter, **generator):
    modules = {"generator": nn.Linear(3, 3), "discriminator": nn.Linear(3, 1)}
    return make_adapter(
        modules, gan_phases(**generator), cls=GanAdapter, module_paths=("generator",)
    )


def grads(module):
    return [parameter.grad is not None for parameter in module.parameters()]


def test_each_phase_writes_gradients_of_its_own_route_alone(make_adapter, run):
    adapter = gan(make_adapter)
    x = {"x": torch.randn(2, 3)}
    run(adapter, "discriminator", x).loss.backward()
    assert all(grads(adapter.model.discriminator))
    assert not any(grads(adapter.model.generator))
    adapter.module.zero_grad()
    run(adapter, "generator", x).loss.backward()
    assert all(grads(adapter.model.generator))
    assert not any(grads(adapter.model.discriminator))


def test_isolation_does_not_change_the_gradients_that_are_wanted(make_adapter, run):
    adapter = gan(make_adapter)
    x = torch.randn(2, 3)
    expected = torch.autograd.grad(
        -adapter.model.discriminator(adapter.model.generator(x)).mean(),
        list(adapter.model.generator.parameters()),
    )
    run(adapter, "generator", {"x": x}).loss.backward()
    for parameter, gradient in zip(adapter.model.generator.parameters(), expected, strict=True):
        assert torch.equal(parameter.grad, gradient)


def test_boundaries_are_restored_after_the_phase_and_after_an_exception(make_adapter, run):
    adapter = gan(make_adapter)
    run(adapter, "generator", {"x": torch.randn(2, 3)})
    assert all(p.requires_grad for p in adapter.module.parameters())
    with pytest.raises(RuntimeError):
        run(adapter, "generator", {"x": torch.randn(2, 5)})
    assert all(p.requires_grad for p in adapter.module.parameters())


def test_a_parameter_frozen_by_the_user_stays_frozen(make_adapter, run):
    modules = {"generator": nn.Linear(3, 3), "discriminator": nn.Linear(3, 1)}
    modules["discriminator"].bias.requires_grad_(False)
    adapter = make_adapter(modules, gan_phases(), cls=GanAdapter, module_paths=("generator",))
    run(adapter, "generator", {"x": torch.randn(2, 3)})
    assert not modules["discriminator"].bias.requires_grad
    assert modules["discriminator"].weight.requires_grad


def test_declared_frozen_components_take_no_gradient_and_pass_it_on(make_adapter, run, batch):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.front, self.back = nn.Linear(4, 4), nn.Linear(4, 1)

        def forward(self, x, labels):
            assert not self.back.weight.requires_grad
            return (self.back(self.front(x)).squeeze(-1) - labels).pow(2).mean()

    model = Model()
    phase = TrainingPhaseSpec("main", frozen_component_paths=("model.back",))
    adapter = make_adapter({"model": model}, (phase,))
    run(adapter, "main", batch).loss.backward()
    assert all(grads(model.front))
    assert not any(grads(model.back))
    assert model.back.weight.requires_grad
    assert [name for name, _ in adapter.routes["default"]] == ["front.weight", "front.bias"]


@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputed_activations_leak_nothing_with_the_boundary_around_the_backward(
    make_adapter, run, reentrant
):
    class Recomputing(GanAdapter):
        def training_step_loss(self, inputs, phase):
            made = self.model.generator(inputs["x"])
            score = checkpoint(self.model.discriminator, made, use_reentrant=reentrant)
            return -score.mean()

    modules = {"generator": nn.Linear(3, 3), "discriminator": nn.Sequential(nn.Linear(3, 1))}
    adapter = make_adapter(modules, gan_phases(), cls=Recomputing, module_paths=("generator",))
    phase = adapter.select_phase("generator")
    with adapter.phase_boundaries(phase):
        run(adapter, "generator", {"x": torch.randn(2, 3)}).loss.backward()
    assert all(grads(modules["generator"]))
    assert not any(grads(modules["discriminator"]))
    assert all(p.requires_grad for p in adapter.module.parameters())


def test_frozen_parameters_nest():
    layer = nn.Linear(2, 2)
    with frozen_parameters(layer.parameters()):
        with frozen_parameters([layer.weight]):
            assert not layer.weight.requires_grad
        assert not layer.weight.requires_grad
    assert layer.weight.requires_grad
    assert layer.bias.requires_grad


def test_frozen_modules_are_the_topmost_ones_without_a_trainable_parameter():
    net = nn.Sequential(
        nn.Sequential(nn.Linear(2, 2), nn.Dropout()),
        nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout()),
        nn.BatchNorm1d(2, affine=False),
    )
    net[0].requires_grad_(False)
    net[1][1].requires_grad_(False)
    found = frozen_modules(net, lambda parameter: parameter.requires_grad)
    assert set(found) == {net[0], net[1][1]}


def test_frozen_batchnorm_keeps_its_statistics_and_frozen_dropout_stays_off(
    make_adapter, regressor, run, batch
):
    regressor.encoder.requires_grad_(False)
    adapter = make_adapter({"model": regressor})
    adapter.train_mode()
    assert regressor.head.training
    assert not any(module.training for module in regressor.encoder.modules())
    before = regressor.encoder[1].running_mean.clone()
    first = run(adapter, "default", batch).loss
    second = run(adapter, "default", batch).loss
    assert torch.equal(first, second)
    assert torch.equal(regressor.encoder[1].running_mean, before)


def test_the_list_of_frozen_modules_follows_requires_grad_when_refreshed(
    make_adapter, regressor, batch
):
    adapter = make_adapter({"model": regressor})
    adapter.train_mode()
    assert regressor.encoder.training
    regressor.encoder.requires_grad_(False)
    adapter.refresh_frozen()
    assert not regressor.encoder.training
    regressor.encoder.requires_grad_(True)
    adapter.refresh_frozen()
    assert regressor.encoder.training
    adapter.eval_mode()
    adapter.refresh_frozen()
    assert not regressor.training


def test_what_every_phase_freezes_stays_in_eval_mode(make_adapter, regressor):
    phase = TrainingPhaseSpec("main", frozen_component_paths=("model.encoder",))
    adapter = make_adapter({"model": regressor}, (phase,))
    adapter.train_mode()
    assert not regressor.encoder.training
    assert regressor.head.training
