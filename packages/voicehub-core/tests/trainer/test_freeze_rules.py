"""Freezing by pattern, by phase and by schedule; parameter groups in a run."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import nn

from voicehub.errors import CheckpointMismatchError, ConfigurationError
from voicehub.trainer.callbacks import TrainerCallback
from voicehub.trainer.trainer import Trainer


class Normed(nn.Module):
    """An encoder with dropout and batch statistics, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.5))
        self.plain_norm = nn.BatchNorm1d(8, affine=False)
        self.head = nn.Linear(8, 1)

    def forward(self, features: Any, mask: Any, targets: Any) -> dict[str, Any]:
        hidden = self.plain_norm(self.encoder(features[mask]))
        return {"loss": (self.head(hidden).squeeze(-1) - targets[mask]).square().mean()}


def model() -> Normed:
    torch.manual_seed(0)
    return Normed()


class Trace(TrainerCallback):
    """What the encoder's first weight and statistics were before every update."""

    def __init__(self) -> None:
        self.weights: list[Any] = []
        self.means: list[Any] = []
        self.training: list[bool] = []

    def on_step_begin(self, *args: Any, **context: Any) -> None:
        encoder = context["adapter"].module.encoder
        self.weights.append(encoder[0].weight.detach().clone())
        self.means.append(encoder[1].running_mean.clone())
        self.training.append(encoder[2].training)


def moved(values: list[Any]) -> list[bool]:
    return [not torch.equal(a, b) for a, b in itertools.pairwise(values)]


def test_frozen_for_ever_is_bit_identical_in_eval_mode_and_in_no_optimizer(toy: Any) -> None:
    net = model()
    start = toy.weights(net)
    trainer = toy.run(model=net, max_steps=4, freeze=["encoder", "plain_norm"])
    end = toy.weights(net)
    changed = {name for name in start if not torch.equal(start[name], end[name])}
    assert changed == {"head.weight", "head.bias"}
    assert not net.encoder.training and not net.plain_norm.training and net.head.training
    state = trainer.graph.optimizers["default"].state_dict()
    assert [len(g["params"]) for g in state["param_groups"]] == [2]


def test_frozen_for_the_first_steps(toy: Any) -> None:
    trace = Trace()
    rules = [{"pattern": "encoder.*", "until_step": 3}]
    toy.run(model=model(), max_steps=6, freeze=rules, trainer={"callbacks": [trace]})
    assert moved(trace.weights) == [False, False, False, True, True]
    assert moved(trace.means) == [False, False, False, True, True]
    assert trace.training == [False, False, False, True, True, True]


def test_frozen_from_a_step_on(toy: Any) -> None:
    trace = Trace()
    rules = [{"pattern": "encoder", "from_step": 2}]
    toy.run(model=model(), max_steps=5, freeze=rules, trainer={"callbacks": [trace]})
    assert moved(trace.weights) == [True, True, False, False]


@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_resume_within_a_schedule_is_exact(toy: Any, at: int) -> None:
    settings = {
        "max_steps": 6,
        "save_strategy": "steps",
        "save_steps": 1,
        "freeze": [
            {"pattern": "encoder", "until_step": 2},
            {"pattern": "head.bias", "from_step": 1, "until_step": 4},
        ],
    }
    whole = toy.run(model=model(), **settings)
    resumed = toy.run(model=model(), resume=whole.run_dir / f"checkpoint-{at}", **settings)
    first, second = toy.weights(whole.model), toy.weights(resumed.model)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_another_schedule_is_another_run(toy: Any) -> None:
    settings = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2}
    whole = toy.run(model=model(), freeze=[{"pattern": "encoder", "until_step": 2}], **settings)
    with pytest.raises(CheckpointMismatchError, match=r"optimization\.freeze"):
        toy.run(
            model=model(),
            freeze=[{"pattern": "encoder", "until_step": 3}],
            resume=whole.run_dir / "checkpoint-2",
            **settings,
        )


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (["encodr"], "'encodr' matches no parameter and no module.*Did you mean 'encoder'"),
        ([{"pattern": "encoder", "phase": "defualt"}], "no phase 'defualt'.*'default'"),
        (["*"], "phase 'default' would have nothing to train from step 0"),
        ([{"pattern": "*", "from_step": 7}], "nothing to train from step 7"),
    ],
)
def test_rules_that_cannot_hold_are_refused_before_training(
    toy: Any, rules: list[Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        toy.run(model=model(), max_steps=1, freeze=rules)


def test_a_misspelt_key_of_a_rule_names_the_nearest(toy: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"freeze\.0\.untl_step'.*'until_step'"):
        toy.arguments(freeze=[{"pattern": "encoder", "untl_step": 3}])
    with pytest.raises(ConfigurationError, match=r"param_groups\.0\.lr_scal'.*'lr_scale'"):
        toy.arguments(param_groups=[{"pattern": "encoder", "lr_scal": 0.1}])


def test_a_rule_for_one_phase_holds_in_that_phase_alone(toy: Any) -> None:
    from voicehub.adapters.base import TrainingAdapter
    from voicehub.specs.model import ModelTrainingSpec
    from voicehub.specs.phase import TrainingPhaseSpec
    from voicehub.specs.support import TrainingSupport

    seen: dict[str, set[Any]] = {"even": set(), "odd": set()}

    class Adapter(TrainingAdapter):
        def training_step_loss(self, inputs: Any, phase: TrainingPhaseSpec) -> Any:
            encoder = self.model.encoder
            seen[phase.name].add((encoder.training, encoder[0].weight.requires_grad))
            return self.model(**inputs)

    spec = ModelTrainingSpec(
        model_type="toy",
        family="toy",
        support=TrainingSupport.NATIVE,
        module_paths=("",),
        phases=(
            TrainingPhaseSpec(name="even", frequency=2),
            TrainingPhaseSpec(name="odd", frequency=2, offset=1),
        ),
    )
    net, trace = model(), Trace()
    trainer = Trainer(
        model=net,
        args=toy.arguments(max_steps=5, freeze=[{"pattern": "encoder", "phase": "odd"}]),
        data_collator=toy.collate,
        train_dataset=toy.Frames(11),
        training_adapter=Adapter(net, spec),
        callbacks=[trace],
    )
    trainer.train()
    assert seen == {"even": {(True, True)}, "odd": {(False, False)}}
    assert moved(trace.weights) == [True, False, True, False]
    assert moved(trace.means) == [True, False, True, False]
    assert net.encoder.training and net.encoder[0].weight.requires_grad


def test_the_table_of_what_trains_shows_groups_and_schedules(toy: Any) -> None:
    from voicehub.cli.training_tables import routes_table

    class Table(TrainerCallback):
        text = ""

        def on_train_begin(self, *args: Any, **context: Any) -> None:
            Table.text = routes_table(context["routes"], frozen=0)

    toy.run(
        model=model(),
        max_steps=2,
        weight_decay=0.01,
        param_groups=[{"pattern": "encoder", "lr_scale": 0.1}],
        freeze=[{"pattern": "encoder.0", "until_step": 1}],
        trainer={"callbacks": [Table]},
    )
    lines = [line.split() for line in Table.text.splitlines()]
    assert any({"decay", "0.01", "no_decay"} & set(line) for line in lines)
    encoder = next(line for line in lines if line[1:2] == ["encoder"])
    assert "0.001" in encoder and "'encoder.0'" in encoder


def test_rates_of_groups_follow_one_schedule(toy: Any) -> None:
    rates: list[list[float]] = []

    class Rates(TrainerCallback):
        def on_step_begin(self, *args: Any, **context: Any) -> None:
            groups = context["optimizers"]["default"].param_groups
            rates.append([group["lr"] for group in groups])

    toy.run(
        model=model(),
        max_steps=6,
        learning_rate=0.01,
        lr_scheduler_type="linear",
        warmup_steps=2,
        param_groups=[{"pattern": "head", "learning_rate": 0.04}],
        trainer={"callbacks": [Rates]},
    )
    expected = [0.0, 0.5, 1.0, 0.75, 0.5, 0.25]
    assert [r[0] for r in rates] == pytest.approx([0.01 * f for f in expected])
    assert [r[1] for r in rates] == pytest.approx([0.04 * f for f in expected])


def test_groups_beside_an_own_optimizer_are_refused(toy: Any) -> None:
    net = model()
    own = torch.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(ConfigurationError, match="param_groups would not be read"):
        toy.run(
            model=net,
            max_steps=1,
            param_groups=[{"pattern": "head", "lr_scale": 2}],
            trainer={"optimizers": (own, None)},
        )
