"""Averaged weights in a run: evaluated, exported, stored and resumed apart from the raw ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from voicehub.errors import CheckpointMismatchError, ConfigurationError
from voicehub.trainer.callbacks import TrainerCallback
from voicehub.trainer.trainer import Trainer

EMA = {"ema_decay": 0.8, "max_steps": 6, "save_strategy": "steps", "save_steps": 3}


def shadows(trainer: Trainer) -> dict[str, Any]:
    assert trainer.averaging is not None
    return trainer.averaging.ema.shadows()


class Watch(TrainerCallback):
    """Recomputes the average by hand, from the weights after every update."""

    def __init__(self) -> None:
        self.history: list[dict[str, Any]] = []

    def on_train_begin(self, *args: Any, **context: Any) -> None:
        self.on_step_end(**context)

    def on_step_end(self, *args: Any, **context: Any) -> None:
        module = context["adapter"].module
        self.history.append({n: p.detach().clone() for n, p in module.named_parameters()})


def test_the_average_is_that_of_the_weights_after_every_update(toy: Any) -> None:
    watch = Watch()
    trainer = toy.run(dtype=torch.float64, trainer={"callbacks": [watch]}, **EMA)
    expected = watch.history[0]
    for update, weights in enumerate(watch.history[1:]):
        decay = min(0.8, (1 + update) / (10 + update))
        expected = {n: decay * v + (1 - decay) * weights[n] for n, v in expected.items()}
    assert len(watch.history) == 7
    for name, value in shadows(trainer).items():
        torch.testing.assert_close(value, expected[name], rtol=1e-12, atol=1e-12)


def test_evaluation_says_which_weights_it_used(toy: Any) -> None:
    data = {"train": toy.Frames(11), "eval_dataset": toy.Frames(5, seed=1)}
    trainer = toy.run(
        train=data["train"],
        trainer={"eval_dataset": data["eval_dataset"]},
        eval_weights="both",
        **EMA,
    )
    raw = toy.weights(trainer.model)
    metrics = trainer.evaluate()
    assert metrics["eval_loss"] != metrics["eval_ema_loss"]
    rows = trainer.state.log_history[-2:]
    assert [row["weights"] for row in rows] == ["raw", "ema"]
    assert rows[0]["eval_loss"] == metrics["eval_loss"] and "eval_ema_loss" not in rows[0]
    assert rows[1]["eval_ema_loss"] == metrics["eval_ema_loss"] and "eval_loss" not in rows[1]
    assert all(torch.equal(v, raw[n]) for n, v in toy.weights(trainer.model).items())
    trainer.model.load_state_dict(shadows(trainer))
    trainer.args.eval_weights = "raw"
    assert trainer.evaluate()["eval_loss"] == metrics["eval_ema_loss"]


def test_ema_alone_takes_the_main_name(toy: Any) -> None:
    trainer = toy.run(trainer={"eval_dataset": toy.Frames(5, seed=1)}, eval_weights="ema", **EMA)
    main = trainer.evaluate()["eval_loss"]
    trainer.args.eval_weights = "both"
    assert trainer.evaluate()["eval_ema_loss"] == main


def test_evaluating_averages_changes_nothing_in_training(toy: Any) -> None:
    options = {"trainer": {"eval_dataset": toy.Frames(5, seed=1)}, **EMA}
    plain = toy.run(**options)
    watched = toy.run(eval_strategy="steps", eval_steps=1, eval_weights="both", **options)
    for name, value in toy.weights(plain.model).items():
        assert torch.equal(value, toy.weights(watched.model)[name])
    for name, value in shadows(plain).items():
        assert torch.equal(value, shadows(watched)[name])


@pytest.mark.parametrize("buffers", ["copy", "average"])
def test_resume_is_exact_for_the_averages(toy: Any, buffers: str) -> None:
    def model() -> torch.nn.Module:
        torch.manual_seed(0)
        net = toy.FrameRegressor(dropout=0.3)
        net.hidden = torch.nn.Sequential(net.hidden, torch.nn.Dropout(0.1))
        net.register_buffer("scale", torch.ones(1))
        net.register_forward_pre_hook(lambda m, _: m.scale.mul_(1.01) and None)
        return net

    whole = toy.run(model=model(), ema_buffers=buffers, **EMA)
    directory = whole.run_dir / "checkpoint-3"
    resumed = toy.run(model=model(), ema_buffers=buffers, resume=directory, **EMA)
    assert resumed.averaging.ema.updates == whole.averaging.ema.updates == 6
    assert ("scale" in shadows(whole)) is (buffers == "average")
    for name, value in shadows(whole).items():
        assert torch.equal(value, shadows(resumed)[name]), name


def test_another_decay_is_another_run(toy: Any) -> None:
    whole = toy.run(**EMA)
    with pytest.raises(CheckpointMismatchError, match=r"decay"):
        toy.run(resume=whole.run_dir / "checkpoint-3", **{**EMA, "ema_decay": 0.9})


def test_artifacts_hold_either_and_say_which(toy: Any) -> None:
    trainer = toy.run(**EMA)
    raw = trainer.save_model(toy.path / "raw")
    averaged = trainer.save_model(toy.path / "ema", weights="ema")
    for name, value in load_file(raw / "model.safetensors").items():
        assert torch.equal(value, toy.weights(trainer.model)[name])
    for name, value in load_file(averaged / "model.safetensors").items():
        assert torch.equal(value, shadows(trainer)[name])
    manifest = json.loads((averaged / "training_recipe.json").read_text())
    assert manifest["weights"] == "ema" and manifest["ema"]["updates"] == 6
    assert json.loads((raw / "training_recipe.json").read_text())["weights"] == "raw"


def test_the_end_of_a_run_keeps_both(toy: Any) -> None:
    trainer = toy.run(**EMA)
    final = trainer.save_final_model()
    assert trainer.save_averaged_model() == final.with_name("final-model-ema")
    averaged = load_file(final.with_name("final-model-ema") / "model.safetensors")
    assert all(torch.equal(value, shadows(trainer)[name]) for name, value in averaged.items())


def test_averages_of_a_checkpoint_as_a_warm_start(toy: Any) -> None:
    trainer = toy.run(**EMA)
    torch.manual_seed(5)
    fresh = Trainer(model=toy.FrameRegressor(), args=toy.arguments(ema_decay=0.5))
    fresh.load_weights(trainer.run_dir / "checkpoint-6", weights="ema")
    for name, value in toy.weights(fresh.model).items():
        assert torch.equal(value, shadows(trainer)[name])
        assert torch.equal(value, shadows(fresh)[name])
    plain = toy.run(max_steps=1, save_strategy="steps", save_steps=1)
    with pytest.raises(CheckpointMismatchError, match="no averaged weights"):
        fresh.load_weights(plain.run_dir / "checkpoint-1", weights="ema")


def test_the_best_model_brings_its_averages(toy: Any) -> None:
    class Worsen(TrainerCallback):
        def on_evaluate(self, args: Any, state: Any, control: Any, **context: Any) -> None:
            context["metrics"]["eval_ema_loss"] = float(state.global_step)

    trainer = toy.run(
        trainer={"eval_dataset": toy.Frames(5, seed=1), "callbacks": [Worsen]},
        eval_strategy="steps",
        eval_steps=3,
        eval_weights="both",
        load_best_model_at_end=True,
        metric_for_best_model="ema_loss",
        **EMA,
    )
    assert trainer.state.best_model_checkpoint == "checkpoint-3"
    assert trainer.averaging.ema.updates == 3


def test_averages_without_ema_are_refused(toy: Any) -> None:
    trainer = toy.run(max_steps=1)
    with pytest.raises(ConfigurationError, match="ema_decay"):
        trainer.save_model(toy.path / "x", weights="ema")
    assert not (toy.path / "x").exists()
    with pytest.raises(ConfigurationError, match="ema_decay"):
        toy.arguments(eval_weights="both")


def test_a_set_named_as_the_averages_is_refused(toy: Any) -> None:
    trainer = toy.run(trainer={"eval_dataset": {"ema": toy.Frames(3)}}, eval_weights="both", **EMA)
    with pytest.raises(ConfigurationError, match="evaluation set 'ema'"):
        trainer.evaluate()
