"""Each alert on a curve that deserves it, none on a healthy one, each once, also over a resume."""

from __future__ import annotations

import io
import json
import logging
import math
from types import SimpleNamespace
from typing import Any

import pytest

from voicehub.reporting.console import ConsoleCallback
from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.callbacks import TrainerCallback
from voicehub.trainer.health import HealthCallback

ARGS = TrainingArguments(warmup_steps=20, logging_steps=10)


class Watch:
    def __init__(self) -> None:
        self.alerts: list[str] = []
        self.callback = HealthCallback(lambda name, advice: self.alerts.append(name))
        self.state: Any = SimpleNamespace(global_step=0, max_steps=1000)

    def log(self, step: int, loss: float, norm: float = 1.0) -> None:
        self.state.global_step = step
        logs = {"loss": loss, "grad_norm": norm}
        self.callback.on_log(ARGS, self.state, None, logs=logs)  # type: ignore[arg-type]

    def evaluate(self, loss: float) -> None:
        metrics = {"eval_loss": loss}
        self.callback.on_evaluate(ARGS, self.state, None, metrics=metrics)  # type: ignore[arg-type]


def test_a_healthy_run_raises_none() -> None:
    watch = Watch()
    for n in range(1, 101):
        watch.log(10 * n, 3.0 * math.exp(-n / 30) + 0.1 * math.sin(n), norm=150 if n == 1 else 5)
        if n % 10 == 0:
            watch.evaluate(3.2 * math.exp(-n / 40) + 0.05 * math.sin(n))
    assert watch.alerts == []


def test_a_flat_loss() -> None:
    watch = Watch()
    for n in range(1, 60):
        watch.log(10 * n, 2.3 + 0.01 * math.sin(n))
    assert watch.alerts == ["flat-loss"]


def test_large_gradients_after_the_warmup_alone() -> None:
    watch = Watch()
    for step, norm in ((10, 500.0), (20, 500.0), (30, 200.0), (40, 50.0), (50, 200.0), (60, 200.0)):
        watch.log(step, 3.0 / step, norm)
    assert watch.alerts == []
    for step in (70, 80):
        watch.log(step, 3.0 / step, 101.0)
    assert watch.alerts == ["large-gradients"]


def test_a_recipe_says_which_gradients_are_large_for_it() -> None:
    watch = Watch()
    adapter = SimpleNamespace(large_gradient_norm=5000.0)
    for step, norm in ((30, 4000.0), (40, 4000.0), (50, 4000.0), (60, 6000.0), (70, 6000.0)):
        watch.state.global_step = step
        logs = {"loss": 3.0 / step, "grad_norm": norm}
        watch.callback.on_log(ARGS, watch.state, None, logs=logs, adapter=adapter)  # type: ignore[arg-type]
    assert watch.alerts == []
    watch.state.global_step = 80
    logs = {"loss": 0.01, "grad_norm": 6000.0}
    watch.callback.on_log(ARGS, watch.state, None, logs=logs, adapter=adapter)  # type: ignore[arg-type]
    assert watch.alerts == ["large-gradients"]


def test_evaluation_rises_while_training_falls() -> None:
    watch = Watch()
    for n, evaluation in enumerate([2.0, 1.5, 1.6, 1.7, 1.8, 1.9], start=1):
        watch.log(10 * n, 2.0 / n)
        watch.evaluate(evaluation)
    assert watch.alerts == ["overfitting"]


def test_both_rising_is_not_overfitting() -> None:
    watch = Watch()
    for n in range(1, 8):
        watch.log(10 * n, 1.0 + (0.0 if n < 2 else 0.1 * n) - (0.9 if n == 1 else 0))
        watch.evaluate(1.0 + 0.1 * n)
    assert "overfitting" not in watch.alerts


def test_state_survives_json_and_alerts_stay_raised() -> None:
    watch = Watch()
    for n in range(1, 40):
        watch.log(10 * n, 2.3)
    resumed = Watch()
    resumed.callback.load_state_dict(json.loads(json.dumps(watch.callback.state_dict())))
    for n in range(40, 60):
        resumed.log(10 * n, 2.3)
    assert watch.alerts == ["flat-loss"] and resumed.alerts == []


def test_alerts_reach_the_metrics_file_and_the_callbacks(
    toy: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Model(toy.FrameRegressor):  # type: ignore[misc, name-defined]
        def forward(self, **batch: Any) -> dict[str, Any]:
            output = super().forward(**batch)
            output["loss"] = output["loss"] * (float("nan") if len(batch["mask"]) == 3 else 1.0)
            return output  # type: ignore[no-any-return]

    trainer = toy.run(model=Model(), per_device_train_batch_size=4, num_train_epochs=2)
    rows = [json.loads(line) for line in (trainer.run_dir / "metrics.jsonl").open()]
    alerts = [row["alert"] for row in rows if "alert" in row]
    assert len(alerts) == 1 and alerts[0].startswith("not-finite: an update was skipped")
    assert trainer.state.skipped_steps == 2


@pytest.mark.parametrize("with_console", [True, False])
def test_an_alert_is_read_once(
    toy: SimpleNamespace, caplog: pytest.LogCaptureFixture, with_console: bool
) -> None:
    class Alarms(TrainerCallback):
        def on_step_end(self, *_: Any, **context: Any) -> None:
            context["trainer"].alert("odd", "look at it")

    screen = io.StringIO()
    console = [ConsoleCallback(stream=screen, live=False)] if with_console else []
    with caplog.at_level(logging.WARNING):
        trainer = toy.run(max_steps=1, trainer={"callbacks": [Alarms(), *console]})
    shown = screen.getvalue() + caplog.text
    assert shown.count("odd: look at it.") == 1
    assert [row["alert"] for row in trainer.state.log_history if "alert" in row] == [
        "odd: look at it."
    ]
