"""TrainingArguments: names, defaults, contradictions and messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from voicehub.errors import ConfigurationError
from voicehub.trainer.arguments import TrainingArguments


def test_documented_defaults() -> None:
    args = TrainingArguments()
    assert (args.output_dir, args.per_device_train_batch_size, args.learning_rate) == (
        "trainer_output",
        8,
        5e-5,
    )
    assert (args.num_train_epochs, args.max_steps, args.lr_scheduler_type) == (3.0, -1, "linear")
    assert (args.save_steps, args.logging_steps, args.max_grad_norm, args.seed) == (500, 500, 1, 42)
    assert args.report_to == [] and args.eval_strategy == "no"


def test_output_dir_may_be_positional() -> None:
    assert TrainingArguments("out").output_dir == "out"


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [("learning_rat", "learning_rate"), ("gradient_acumulation_steps", "gradient_accumulation")],
)
def test_an_unknown_name_suggests_the_nearest(wrong: str, nearest: str) -> None:
    with pytest.raises(ConfigurationError, match=nearest):
        TrainingArguments(**{wrong: 1})


def test_names_of_other_trainers_say_what_to_do() -> None:
    with pytest.raises(ConfigurationError, match=r"trainer\.train"):
        TrainingArguments(do_train=True)


def test_evaluation_strategy_is_an_alias() -> None:
    assert TrainingArguments(evaluation_strategy="epoch").eval_strategy == "epoch"
    with pytest.raises(ConfigurationError, match="not both"):
        TrainingArguments(evaluation_strategy="epoch", eval_strategy="epoch")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"fp16": True, "bf16": True}, "fp16 and bf16"),
        ({"warmup_ratio": 0.1, "warmup_steps": 5}, "warmup_ratio and warmup_steps"),
        ({"max_steps": 0}, "max_steps"),
        ({"learning_rate": "fast"}, "learning_rate"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"per_device_train_batch_size": 0}, "per_device_train_batch_size"),
        ({"load_best_model_at_end": True}, "eval_strategy"),
        ({"early_stopping_patience": 2}, "eval_strategy"),
        ({"lr_scheduler_type": "cosin"}, "cosine"),
        ({"lr_scheduler_type": "plateau"}, "eval_strategy"),
        ({"lr_scheduler_kwargs": {"gama": 0.1}, "lr_scheduler_type": "exponential"}, "gamma"),
        (
            {"load_best_model_at_end": True, "eval_strategy": "epoch"},
            "save_strategy and eval_strategy",
        ),
        (
            {
                "load_best_model_at_end": True,
                "eval_strategy": "steps",
                "eval_steps": 300,
                "save_steps": 500,
            },
            "multiple",
        ),
    ],
)
def test_contradictions_are_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        TrainingArguments(**settings)  # type: ignore[arg-type]


def test_derived_defaults() -> None:
    args = TrainingArguments(eval_strategy="steps", logging_steps=7)
    assert args.eval_steps == 7
    best = TrainingArguments(
        eval_strategy="epoch", save_strategy="epoch", load_best_model_at_end=True
    )
    assert (best.metric_for_best_model, best.greater_is_better) == ("loss", False)
    for name in ("wer", "eval_dev_eer", "min_dcf", "probe_error"):
        lower = TrainingArguments(eval_strategy="epoch", metric_for_best_model=name)
        assert lower.greater_is_better is False
    accuracy = TrainingArguments(eval_strategy="epoch", metric_for_best_model="accuracy")
    assert accuracy.greater_is_better is True


def test_reporters_from_a_name_or_nothing() -> None:
    assert TrainingArguments(report_to="none").report_to == []
    assert TrainingArguments(report_to="wandb").report_to == ["wandb"]


def test_json_round_trip(tmp_path: Path) -> None:
    args = TrainingArguments("out", learning_rate=3e-4, lr_scheduler_type="step",
                             lr_scheduler_kwargs={"step_size": 4})  # fmt: skip
    args.save_json(tmp_path / "args.json")
    assert TrainingArguments.from_json_file(tmp_path / "args.json") == args


def test_assignment_is_checked_too() -> None:
    args = TrainingArguments()
    args.output_dir = "elsewhere"
    assert args.output_dir == "elsewhere"
    with pytest.raises(ValueError, match="learning_rate"):
        args.learning_rate = -1.0


def test_warmup_from_a_ratio() -> None:
    assert TrainingArguments(warmup_ratio=0.1).get_warmup_steps(105) == 10
    assert TrainingArguments(warmup_steps=7).get_warmup_steps(105) == 7
