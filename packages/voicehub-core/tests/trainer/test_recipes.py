"""Phases, routes and their order, on a toy GAN and on phases that share a route."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from voicehub.adapters.base import TrainingAdapter
from voicehub.errors import ConfigurationError, RecipeError
from voicehub.specs.model import ModelTrainingSpec
from voicehub.specs.phase import PhaseKind, TrainingPhaseSpec
from voicehub.specs.support import TrainingSupport
from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.trainer import Trainer


class Gan(nn.Module):
    """A generator of one number a frame and a critic."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Linear(3, 1)
        self.discriminator = nn.Linear(1, 1)
        self.order: list[tuple[str, float]] = []


class GanAdapter(TrainingAdapter):
    """LSGAN losses, means over frames."""

    supports_custom_recipe = True

    def training_step_loss(self, inputs: Any, phase: TrainingPhaseSpec) -> dict[str, Any]:
        gan: Gan = self.model
        mask, frames = inputs["mask"], inputs["mask"].sum()
        gan.order.append((phase.name, float(gan.discriminator.weight.detach().sum())))
        fake = gan.generator(inputs["features"])
        if phase.component_paths == ("discriminator",):
            real = gan.discriminator(inputs["targets"].unsqueeze(-1)).squeeze(-1)
            judged = gan.discriminator(fake.detach()).squeeze(-1)
            errors = (real - 1).square() + judged.square()
        elif phase.name == "generator":
            errors = (gan.discriminator(fake).squeeze(-1) - 1).square()
        else:
            errors = (fake.squeeze(-1) - inputs["targets"]).square()
        return {"loss": (errors * mask).sum() / frames, "num_items": frames}


def gan_spec(*extra: TrainingPhaseSpec, sequential: bool = True) -> ModelTrainingSpec:
    shared: dict[str, Any] = {"optimizer_step_after_phase": sequential}
    return ModelTrainingSpec(
        model_type="toy-gan",
        family="toy",
        support=TrainingSupport.CUSTOM,
        module_paths=("",),
        phases=(
            TrainingPhaseSpec(
                name="discriminator",
                kind=PhaseKind.DISCRIMINATOR,
                component_paths=("discriminator",),
                optimizer_names=("d",),
                forward_component="discriminator",
                **shared,
            ),
            TrainingPhaseSpec(
                name="generator",
                kind=PhaseKind.GENERATOR,
                component_paths=("generator",),
                optimizer_names=("g",),
                forward_component="generator",
                **shared,
            ),
            *extra,
        ),
    )


def auxiliary(sequential: bool) -> TrainingPhaseSpec:
    return TrainingPhaseSpec(
        name="auxiliary",
        kind=PhaseKind.AUXILIARY,
        component_paths=("generator",),
        optimizer_names=("g",),
        forward_component="generator",
        frequency=3,
        offset=1,
        optimizer_step_after_phase=sequential,
    )


def train_gan(toy: Any, spec: ModelTrainingSpec, **settings: Any) -> tuple[Gan, Trainer, Any]:
    torch.manual_seed(3)
    gan = Gan().to(torch.float64)
    start = toy.weights(gan)
    defaults: dict[str, Any] = {
        "optim": "sgd",
        "learning_rate": 0.1,
        "max_grad_norm": 0.0,
        "num_train_epochs": 1,
        "per_device_train_batch_size": 8,
    }
    trainer = Trainer(
        model=gan,
        args=toy.arguments(**{**defaults, **settings}),
        data_collator=toy.collate,
        train_dataset=toy.Frames(22, dtype=torch.float64),
        training_adapter=GanAdapter(gan, spec),
    )
    trainer.train()
    return gan, trainer, start


def test_the_generator_sees_the_updated_discriminator(toy: Any) -> None:
    gan, trainer, _ = train_gan(toy, gan_spec())
    assert [name for name, _ in gan.order] == ["discriminator", "generator"] * 3
    for (_, before), (_, after) in zip(gan.order[::2], gan.order[1::2], strict=True):
        assert before != after
    assert trainer.state.global_step == 3


def test_one_round_is_one_global_step(toy: Any) -> None:
    _, trainer, _ = train_gan(toy, gan_spec(), max_steps=5)
    assert trainer.state.global_step == 5


@pytest.mark.parametrize("sequential", [True, False])
@pytest.mark.parametrize("split", [(4, 2), (2, 4), (1, 8)])
def test_gan_order_survives_accumulation(
    toy: Any, sequential: bool, split: tuple[int, int]
) -> None:
    spec = gan_spec(auxiliary(sequential), sequential=sequential)
    whole, _, start = train_gan(toy, spec)
    parts, _, _ = train_gan(
        toy, spec, per_device_train_batch_size=split[0], gradient_accumulation_steps=split[1]
    )
    assert toy.distance(toy.weights(whole), toy.weights(parts), start) <= 1e-9


def test_phases_that_share_a_route_each_take_their_own_mean(toy: Any) -> None:
    """Generator and auxiliary phase step together: the gradient is the sum of two means."""
    joint = TrainingPhaseSpec(
        name="auxiliary",
        component_paths=("generator",),
        optimizer_names=("g",),
        forward_component="generator",
    )
    spec = gan_spec(joint, sequential=False)
    torch.manual_seed(3)
    reference = Gan().to(torch.float64)
    adapter = GanAdapter(reference, spec)
    adapter.setup()
    batch = toy.collate(toy.Frames(4, dtype=torch.float64).items)
    start = toy.weights(reference)
    losses = [adapter.training_step_loss(batch, adapter.select_phase(n))["loss"]
              for n in ("generator", "auxiliary")]  # fmt: skip
    grads = torch.autograd.grad(sum(losses), list(reference.generator.parameters()))
    expected = {n: v.clone() for n, v in start.items()}
    for (name, _), grad in zip(reference.generator.named_parameters(), grads, strict=True):
        expected[f"generator.{name}"] -= 0.1 * grad

    torch.manual_seed(3)
    gan = Gan().to(torch.float64)
    trainer = Trainer(
        model=gan,
        args=toy.arguments(
            optim="sgd",
            learning_rate=0.1,
            max_grad_norm=0.0,
            max_steps=1,
            per_device_train_batch_size=1,
            gradient_accumulation_steps=4,
        ),
        data_collator=toy.collate,
        train_dataset=toy.Frames(4, dtype=torch.float64),
        training_adapter=GanAdapter(gan, spec),
    )
    trainer.train()
    for name, _ in gan.generator.named_parameters():
        torch.testing.assert_close(
            gan.state_dict()[f"generator.{name}"], expected[f"generator.{name}"]
        )


def test_a_phase_writes_no_gradient_into_another_route(toy: Any) -> None:
    gan, _, start = train_gan(toy, gan_spec(sequential=False), max_steps=1)
    alone = gan_spec(sequential=False)
    reference = Gan().to(torch.float64)
    reference.load_state_dict(start)
    adapter = GanAdapter(reference, alone)
    adapter.setup()
    generator = adapter.select_phase("generator")
    from voicehub.adapters.context import TrainingContext

    batch = toy.collate(toy.Frames(8, dtype=torch.float64).items)
    adapter.execute_training_phase(TrainingContext(generator, batch)).loss.backward()
    assert all(p.grad is None for p in reference.discriminator.parameters())
    assert all(p.grad is not None for p in reference.generator.parameters())
    assert all(p.requires_grad for p in reference.parameters())
    assert not torch.equal(gan.discriminator.weight, start["discriminator.weight"])


def test_route_horizons_follow_frequency(toy: Any) -> None:
    seen: dict[str, int] = {}

    def factory(name: str, optimizer: Any, updates: int, args: TrainingArguments) -> Any:
        seen[name] = updates
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1.0)

    torch.manual_seed(0)
    gan = Gan().to(torch.float64)
    half = TrainingPhaseSpec(
        name="auxiliary",
        kind=PhaseKind.AUXILIARY,
        component_paths=("discriminator",),
        optimizer_names=("d",),
        forward_component="discriminator",
        frequency=2,
        optimizer_step_after_phase=True,
    )
    trainer = Trainer(
        model=gan,
        args=toy.arguments(max_steps=5),
        data_collator=toy.collate,
        train_dataset=toy.Frames(8, dtype=torch.float64),
        training_adapter=GanAdapter(gan, gan_spec(half)),
        scheduler_factory=factory,
    )
    trainer.train()
    assert seen == {"d": 5 + 3, "g": 5}
    assert trainer._run.schedulers["d"].last_epoch == 8  # type: ignore[attr-defined]


def test_a_batch_may_name_its_phase(toy: Any) -> None:
    def collate(items: Any) -> dict[str, Any]:
        return {**toy.collate(items), "training_phase": "generator"}

    torch.manual_seed(3)
    gan = Gan().to(torch.float64)
    trainer = Trainer(
        model=gan,
        args=toy.arguments(max_steps=2),
        data_collator=collate,
        train_dataset=toy.Frames(8, dtype=torch.float64),
        training_adapter=GanAdapter(gan, gan_spec()),
    )
    trainer.train()
    assert {name for name, _ in gan.order} == {"generator"}


def test_a_custom_loss_is_refused_with_several_phases(toy: Any) -> None:
    gan = Gan()
    with pytest.raises(ConfigurationError, match="discriminator, generator"):
        Trainer(
            model=gan,
            args=toy.arguments(),
            train_dataset=toy.Frames(2),
            training_adapter=GanAdapter(gan, gan_spec()),
            compute_loss_func=lambda outputs, labels: outputs,
        )


class TestOwners:
    """Every trainable parameter steps exactly once, and nothing foreign does."""

    def build(self, toy: Any, **options: Any) -> Trainer:
        model = options.pop("model", None) or toy.FrameRegressor()
        trainer = Trainer(
            model=model,
            args=toy.arguments(),
            data_collator=toy.collate,
            train_dataset=toy.Frames(3),
            **options,
        )
        trainer.graph  # noqa: B018 - set-up happens here
        return trainer

    def test_foreign_parameters(self, toy: Any) -> None:
        foreign = torch.optim.SGD([nn.Parameter(torch.zeros(2))], lr=1.0)
        with pytest.raises(RecipeError, match="foreign to the model"):
            self.build(toy, optimizers=(foreign, None))

    def test_parameters_in_no_optimizer(self, toy: Any) -> None:
        model = toy.FrameRegressor()
        partial = torch.optim.SGD(model.hidden.parameters(), lr=1.0)
        with pytest.raises(RecipeError, match=r"output\.weight"):
            self.build(toy, model=model, optimizers=(partial, None))

    def test_parameters_in_two_optimizers(self, toy: Any) -> None:
        torch.manual_seed(0)
        gan = Gan()

        def factory(name: str, named: Any, args: TrainingArguments) -> torch.optim.Optimizer:
            return torch.optim.SGD(gan.parameters(), lr=1.0)

        with pytest.raises(RecipeError, match="belongs to route|step twice"):
            self.build(
                toy,
                model=gan,
                training_adapter=GanAdapter(gan, gan_spec()),
                optimizer_factory=factory,
            )

    def test_own_optimizer_is_used(self, toy: Any, tmp_path: Path) -> None:
        model = toy.FrameRegressor()
        own = torch.optim.RMSprop(model.parameters(), lr=1e-3)
        trainer = self.build(toy, model=model, optimizers=(own, None))
        assert trainer.graph.optimizers["default"] is own


def test_what_a_phase_freezes_by_design_needs_no_optimizer(toy: Any) -> None:
    spec = ModelTrainingSpec(
        model_type="toy-frozen",
        family="toy",
        support=TrainingSupport.NATIVE,
        module_paths=("",),
        phases=(TrainingPhaseSpec(name="default", frozen_component_paths=("hidden",)),),
    )
    torch.manual_seed(0)
    model = toy.FrameRegressor()
    start = toy.weights(model)
    trainer = Trainer(
        model=model,
        args=toy.arguments(max_steps=2),
        data_collator=toy.collate,
        train_dataset=toy.Frames(8),
        training_adapter=TrainingAdapter(model, spec),
    )
    trainer.train()
    moved = {n for n, v in toy.weights(model).items() if not torch.equal(v, start[n])}
    assert moved == {"output.weight", "output.bias"}
