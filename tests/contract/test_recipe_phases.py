"""R1-R9: phases, routes, accumulation, order, losses, boundaries."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from recipes import (
    DTYPE,
    HYBRID,
    Frames,
    Hybrid,
    HybridAdapter,
    Regressor,
    StopAfter,
    arguments,
    build,
    collate,
    mean,
    relative_distance,
    seeded,
    trainer_for,
    weights,
)
from torch import nn

from voicehub.adapters.base import TrainingAdapter
from voicehub.errors import ConfigurationError, RecipeError
from voicehub.specs.model import ModelTrainingSpec
from voicehub.specs.phase import PhaseKind, TrainingPhaseSpec
from voicehub.trainer.trainer import Trainer

SGD = {"optim": "sgd", "learning_rate": 0.1, "max_grad_norm": 0.0}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("frequency", 0),
        ("offset", 3),
        ("kind", "objectiv"),
        ("optimizer_names", ("a", "b", "c")),
        ("loss_weights", {"loss": float("nan")}),
        ("loss_weights", {"other": 1.0}),
        ("fallback_objective", "ctc"),
        ("input_aliases", {"a": "x", "b": "x"}),
        ("optimizer_step_after_phase", True),
    ],
)
def test_R1_invalid_phases_are_refused_on_construction(field: str, value: Any) -> None:
    valid: dict[str, Any] = {"name": "phase", "frequency": 3, "component_paths": ("a", "b")}
    TrainingPhaseSpec(**valid)
    with pytest.raises(ValueError, match="[Pp]hase"):
        TrainingPhaseSpec(**{**valid, field: value})


def test_R1_the_kinds_of_phases() -> None:
    kinds = {"objective", "generator", "discriminator", "duration-discriminator", "auxiliary"}
    assert {kind.value for kind in PhaseKind} == kinds


class TestR2:
    """Phases are due by optimizer steps; only active routes advance."""

    def run(self, tmp_path: Path, **settings: Any) -> tuple[Any, Trainer]:
        trainer = trainer_for("gan", tmp_path / "run", **{"max_steps": 7, **settings})
        trainer.train()
        return trainer.model.seen, trainer

    @pytest.mark.parametrize("accumulation", [1, 2])
    def test_R2_the_order_and_the_steps_of_the_phases(
        self, tmp_path: Path, accumulation: int
    ) -> None:
        seen, trainer = self.run(
            tmp_path, gradient_accumulation_steps=accumulation, per_device_train_batch_size=2
        )
        each = ["discriminator"] * accumulation + ["generator"] * accumulation
        with_auxiliary = each + ["auxiliary"] * accumulation
        expected = [n for step in range(7) for n in (with_auxiliary if step % 3 == 1 else each)]
        if accumulation == 1:
            assert [name for name, _ in seen] == expected
        else:  # 11 micro-batches an epoch: every sixth window is ragged and holds one
            assert [name for name, _ in seen[:10]] == expected[:10]
        assert trainer.state.global_step == 7
        schedulers = trainer._run.schedulers  # type: ignore[union-attr]
        assert schedulers["d"].updates == 7 and schedulers["g"].updates == 7 + 2

    def test_R2_an_inactive_route_keeps_weights_optimizer_and_schedule(
        self, tmp_path: Path
    ) -> None:
        trainer = trainer_for("hybrid", tmp_path / "run", max_steps=4, lr_scheduler_type="linear")
        trace: list[tuple[Any, Any]] = []

        class Trace(StopAfter):
            def on_step_end(self, args: Any, state: Any, control: Any, **context: Any) -> None:
                hybrid = context["model"]
                trace.append(
                    (hybrid.encoder.weight.detach().clone(), hybrid.decoder.weight.detach().clone())
                )

        trainer.add_callback(Trace(0))
        trainer.train()
        moved = [
            tuple(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
            for before, after in itertools.pairwise(trace)
        ]
        assert moved == [(True, False), (True, True), (True, False)]
        optimizers = trainer.graph.optimizers
        steps = [
            int(next(iter(optimizers[route].state.values()))["step"]) for route in ("enc", "dec")
        ]
        assert steps == [4, 2]

    def test_R2_every_step_must_have_a_phase(self) -> None:
        with pytest.raises(RecipeError, match="cover every recipe step"):
            ModelTrainingSpec("x", "y", phases=(TrainingPhaseSpec("a", frequency=2, offset=1),))


class TestR3:
    """An update is the mean over the items of its window."""

    @pytest.mark.parametrize("recipe", ["plain", "gan", "hybrid"])
    def test_R3_ragged_windows_are_means_over_items(self, tmp_path: Path, recipe: str) -> None:
        """22 items: windows of 8, 8 and 6 in one piece, or in micro-batches of 4 and less."""
        runs = [
            trainer_for(
                recipe,
                tmp_path / str(size),
                num_train_epochs=1,
                max_steps=-1,
                per_device_train_batch_size=size,
                gradient_accumulation_steps=8 // size,
                **SGD,
            )
            for size in (8, 4, 2)
        ]
        start = weights(runs[0])
        for run in runs:
            run.train()
            assert run.state.global_step == 3
        assert relative_distance(runs[0], runs[1], start) <= 1e-9
        assert relative_distance(runs[0], runs[2], start) <= 1e-9

    @pytest.mark.parametrize("named", [False, True])
    @pytest.mark.parametrize("keywords", [False, True])
    def test_R3_without_items_micro_batches_count_alike(
        self, tmp_path: Path, named: bool, keywords: bool
    ) -> None:
        class Mean(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layer = nn.Linear(3, 1, bias=False, dtype=DTYPE)

            def loss(self, features: Any, mask: Any, targets: Any) -> Any:
                errors = (self.layer(features).squeeze(-1) - targets).square()
                return mean(errors, mask)["loss"]

            def forward(self, features: Any, mask: Any, targets: Any) -> Any:
                return {"loss": self.loss(features, mask, targets)}

        class Keywords(Mean):
            def forward(self, **batch: Any) -> Any:  # type: ignore[override]
                return {"loss": self.loss(**batch)}

        model = seeded(Keywords if keywords else Mean)
        phase = TrainingPhaseSpec(
            "default", component_paths=("layer",), optimizer_names=("only",) if named else ()
        )
        spec = ModelTrainingSpec(
            "contract-r3", "contract", support="native", module_paths=("",), phases=(phase,)
        )
        items = Frames(4).items
        start = model.layer.weight.detach().clone()
        losses = [model.loss(**collate([item])) for item in items]
        (grad,) = torch.autograd.grad(sum(losses) / 4, [model.layer.weight])
        Trainer(
            model=model,
            args=arguments(
                tmp_path / "run",
                max_steps=1,
                per_device_train_batch_size=1,
                gradient_accumulation_steps=4,
                **SGD,
            ),
            data_collator=collate,
            train_dataset=items,
            training_adapter=TrainingAdapter(model, spec),
        ).train()
        torch.testing.assert_close(model.layer.weight, start - 0.1 * grad, rtol=1e-12, atol=1e-14)

    def test_R3_each_route_counts_its_own_items(self, tmp_path: Path) -> None:
        """Encoder loss over frames, decoder loss over utterances: two means, two counts."""

        class Two(HybridAdapter):
            def training_step_loss(self, inputs: Any, phase: TrainingPhaseSpec) -> Any:
                output = super().training_step_loss(inputs, phase)
                if phase.name == "encoder":
                    return output
                hidden = torch.tanh(self.model.encoder(inputs["features"])).detach()
                kept = inputs["mask"].unsqueeze(-1)
                pooled = (hidden * kept).sum(1) / kept.sum(1)
                errors = (self.model.decoder(pooled).squeeze(-1) - 1).square()
                return {"loss": errors.mean(), "num_items": len(errors)}

        ends = []
        for size in (8, 2):
            hybrid = seeded(Hybrid)
            start = {n: v.detach().clone() for n, v in hybrid.state_dict().items()}
            trainer = Trainer(
                model=hybrid,
                args=arguments(
                    tmp_path / str(size),
                    max_steps=2,
                    per_device_train_batch_size=size,
                    gradient_accumulation_steps=8 // size,
                    **SGD,
                ),
                data_collator=collate,
                train_dataset=Frames(16),
                training_adapter=Two(hybrid, HYBRID),
            )
            trainer.train()
            ends.append(trainer)
        assert relative_distance(ends[0], ends[1], start) <= 1e-9


class TestR4:
    """Sequential phases: GAN order, exact under accumulation."""

    @pytest.mark.parametrize("accumulation", [1, 4])
    def test_R4_the_generator_sees_the_updated_discriminator(
        self, tmp_path: Path, accumulation: int
    ) -> None:
        trainer = trainer_for(
            "gan",
            tmp_path / "run",
            max_steps=2,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=accumulation,
            spec={"auxiliary": False},
        )
        trainer.train()
        n, seen = accumulation, trainer.model.seen
        assert [name for name, _ in seen[: 2 * n]] == ["discriminator"] * n + ["generator"] * n
        first, then, again = ({w for _, w in seen[k * n : (k + 1) * n]} for k in range(3))
        assert len(first) == len(then) == 1
        assert first != then and then == again  # the next round begins where this one ended
        assert trainer.state.global_step == 2

    def test_R4_one_round_by_hand(self, tmp_path: Path) -> None:
        gan, adapter = build("gan", auxiliary=False)
        adapter.setup()
        batch = collate(Frames(4).items)
        for name, parts in (
            ("discriminator", [gan.discriminator]),
            ("generator", [gan.generator, gan.voice]),
        ):
            own = [p for part in parts for p in part.parameters()]
            loss = adapter.training_step_loss(batch, adapter.select_phase(name))["loss"]
            with torch.no_grad():
                for p, g in zip(own, torch.autograd.grad(loss, own), strict=True):
                    p -= 0.1 * g
        trainer = trainer_for(
            "gan",
            tmp_path / "run",
            data=Frames(4),
            max_steps=1,
            per_device_train_batch_size=1,
            gradient_accumulation_steps=4,
            spec={"auxiliary": False},
            **SGD,
        )
        trainer.train()
        for name, value in weights(trainer).items():
            torch.testing.assert_close(value, gan.state_dict()[name], rtol=1e-10, atol=1e-12)


class TestR5:
    """Every trainable parameter has exactly one owner."""

    def setup_with(self, *phases: TrainingPhaseSpec) -> TrainingAdapter:
        spec = ModelTrainingSpec(
            "contract-r5", "contract", support="native", module_paths=("",), phases=phases
        )
        adapter = TrainingAdapter(seeded(Hybrid), spec)
        adapter.setup()
        return adapter

    def test_R5_one_name_owns_all_or_names_map_to_paths(self) -> None:
        paths = ("encoder", "decoder")
        joint = self.setup_with(
            TrainingPhaseSpec("p", component_paths=paths, optimizer_names=("all",))
        )
        assert {k: len(v) for k, v in joint.routes.items()} == {"all": 4}
        split = self.setup_with(
            TrainingPhaseSpec("p", component_paths=paths, optimizer_names=("enc", "dec"))
        )
        assert {k: len(v) for k, v in split.routes.items()} == {"enc": 2, "dec": 2}

    def test_R5_two_owners_are_an_error_that_names_all(self) -> None:
        with pytest.raises(RecipeError, match=r"encoder\.weight.*'one' and 'two'"):
            self.setup_with(
                TrainingPhaseSpec("a", component_paths=("encoder",), optimizer_names=("one",)),
                TrainingPhaseSpec(
                    "b", component_paths=("encoder", "decoder"), optimizer_names=("two",)
                ),
            )

    def test_R5_no_owner_is_an_error(self) -> None:
        with pytest.raises(RecipeError, match=r"decoder\.weight.*would never train"):
            self.setup_with(
                TrainingPhaseSpec("a", component_paths=("encoder",), optimizer_names=("one",))
            )


class TestR6:
    """A batch may name its phase; a custom loss is one forward."""

    def test_R6_a_named_phase_runs_alone(self, tmp_path: Path) -> None:
        def named(items: Any) -> Any:
            return {**collate(items), "training_phase": "generator"}

        trainer = trainer_for("gan", tmp_path / "run", options={"data_collator": named})
        before = weights(trainer)["discriminator.weight"]
        trainer.train()
        assert {name for name, _ in trainer.model.seen} == {"generator"}
        assert torch.equal(weights(trainer)["discriminator.weight"], before)

    def test_R6_an_unknown_phase_lists_the_known(self, tmp_path: Path) -> None:
        def named(items: Any) -> Any:
            return {**collate(items), "training_phase": "generatr"}

        trainer = trainer_for("gan", tmp_path / "run", options={"data_collator": named})
        with pytest.raises(ValueError, match=r"Unknown training phase.*'generator'"):
            trainer.train()

    def test_R6_a_custom_loss_gets_outputs_labels_and_the_items_of_the_window(
        self, tmp_path: Path
    ) -> None:
        class Logits(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layer = nn.Linear(3, 4, dtype=DTYPE)

            def forward(self, x: Any) -> Any:
                return {"logits": self.layer(x)}

        def labelled(items: Any) -> Any:
            labels = [torch.full((len(item["targets"]),), i % 4) for i, item in enumerate(items)]
            pad = nn.utils.rnn.pad_sequence
            return {
                "x": collate(items)["features"],
                "labels": pad(labels, batch_first=True, padding_value=-100),
            }

        counts: list[int] = []

        def loss(outputs: Any, labels: Any, num_items_in_batch: int) -> Any:
            counts.append(num_items_in_batch)
            logits = outputs["logits"].flatten(0, 1)
            summed = nn.functional.cross_entropy(logits, labels.flatten(), reduction="sum")
            return summed / num_items_in_batch

        data = Frames(22)
        trainer = Trainer(
            model=seeded(Logits),
            args=arguments(
                tmp_path / "run",
                num_train_epochs=1,
                max_steps=-1,
                per_device_train_batch_size=3,
                gradient_accumulation_steps=2,
            ),
            data_collator=labelled,
            train_dataset=data,
            compute_loss_func=loss,
        )
        trainer.train()
        # 22 items in micro-batches of 3: 8 of them, the last with a single item; 4 whole windows.
        assert len(counts) == 8 and counts[::2] == counts[1::2]
        assert sum(counts[::2]) == sum(len(item["targets"]) for item in data.items)

    def test_R6_a_custom_loss_is_refused_with_several_phases(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match="discriminator, generator, auxiliary"):
            trainer_for(
                "gan", tmp_path / "run", options={"compute_loss_func": lambda outputs, labels: 0}
            )


def test_R7_factories_get_each_route_with_its_own_number_of_updates(tmp_path: Path) -> None:
    made: dict[str, Any] = {}

    def optimizer(name: str, named: Any, args: Any) -> Any:
        made[name] = sorted(key for key, _ in named)
        return torch.optim.SGD([p for _, p in named], lr=0.01)

    def scheduler(name: str, optimizer: Any, num_training_steps: int, args: Any) -> Any:
        made[f"{name} updates"] = num_training_steps
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)

    factories = {"optimizer_factory": optimizer, "scheduler_factory": scheduler}
    trainer_for("hybrid", tmp_path / "h", options=factories, max_steps=5).train()
    assert made == {
        "enc": ["encoder.bias", "encoder.weight"],
        "dec": ["decoder.bias", "decoder.weight"],
        "enc updates": 5,
        "dec updates": 3,
    }
    made.clear()
    trainer_for("gan", tmp_path / "g", options=factories, max_steps=5).train()
    assert made["d updates"] == 5 and made["g updates"] == 5 + 2


def test_R1_a_plain_module_has_one_phase_and_one_route(tmp_path: Path) -> None:
    trainer = Trainer(
        model=seeded(Regressor),
        args=arguments(tmp_path / "run"),
        train_dataset=Frames(4),
        data_collator=collate,
    )
    assert [phase.name for phase in trainer.adapter.phases] == ["default"]
    assert list(trainer.graph.adapter.routes) == ["default"]
