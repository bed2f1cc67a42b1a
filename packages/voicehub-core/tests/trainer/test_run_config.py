"""Settings that a family does not read, and runs without data for an evaluation."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError, model_validator
from typing_extensions import Self

from voicehub.errors import ConfigurationError
from voicehub.trainer.run_config import RunConfig


class ToyRun(RunConfig):
    @model_validator(mode="after")
    def _settings_have_one_home(self) -> Self:
        self.refuse_unread({"per_device_train_batch_size": "data.batches"})
        return self


def run(**training: Any) -> ToyRun:
    settings = {"output_dir": "runs", **training}
    return ToyRun.model_validate({"family": "toy", "model_type": "toy", "training": settings})


def test_a_setting_that_is_not_read_is_refused_with_its_home():
    run()
    with pytest.raises(ValidationError, match="per_device_train_batch_size is not read here: set "
                       "data.batches instead"):  # fmt: skip
        run(per_device_train_batch_size=3)


def test_without_data_nothing_is_evaluated_chosen_or_stopped():
    config = run(
        eval_strategy="epoch",
        save_strategy="epoch",
        load_best_model_at_end=True,
        metric_for_best_model="loss",
        early_stopping_patience=2,
    )
    (told,) = config.evaluate_nothing()
    assert told.startswith("no data.eval was given: nothing is evaluated")
    assert "no load_best_model_at_end and no early_stopping_patience" in told
    training = config.training
    assert (training.eval_strategy, training.load_best_model_at_end) == ("no", False)
    assert training.early_stopping_patience is None
    assert config.evaluate_nothing() == [], "said once"


def test_a_learning_rate_that_follows_evaluations_needs_data_for_them():
    config = run(eval_strategy="epoch", lr_scheduler_type="plateau")
    with pytest.raises(ConfigurationError, match="plateau follows evaluations, and no data.eval"):
        config.evaluate_nothing()
    (told,) = run(eval_strategy="epoch").evaluate_nothing()
    assert told == "no data.eval was given: nothing is evaluated"
