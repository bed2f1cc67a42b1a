"""Blank collapse is told once, with causes; a healthy run is left alone."""

from __future__ import annotations

import pytest

from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.state import TrainerControl, TrainerState
from voicehub_asr_ctc.health import (
    CollapseMonitor,
    Suspicion,
    learning_rate_suspicion,
)


class Alerts:
    def __init__(self):
        self.raised = []

    def alert(self, name, advice):
        self.raised.append((name, advice))


class Adapter:
    blank_share = None


def run(monitor, course, *, eval_strategy="epoch", steps=100):
    """Play rows of (step, loss, gradient norm, share of empty hypotheses or blank frames)."""
    arguments = TrainingArguments(eval_strategy=eval_strategy)
    alerts, adapter, control = Alerts(), Adapter(), TrainerControl()
    state = TrainerState()
    state.max_steps = steps
    for step, loss, norm, share in course:
        state.global_step = step
        adapter.blank_share = share
        logs = {"loss": loss, "grad_norm": norm, "learning_rate": 1e-3}
        context = {"trainer": alerts, "adapter": adapter}
        monitor.on_log(arguments, state, control, logs=logs, **context)
        if eval_strategy != "no":
            metrics = {"eval_empty_share": share}
            monitor.on_evaluate(arguments, state, control, metrics=metrics, **context)
    return alerts.raised


def test_a_healthy_run_raises_nothing():
    course = [(10, 9.0, 5, 1.0), (20, 3.0, 2, 1.0), (40, 1.0, 2, 0.1), (100, 0.1, 1, 0.0)]
    assert run(CollapseMonitor(), course) == []


def test_staying_collapsed_is_told_once_with_the_causes_of_the_pre_flight():
    doubts = [Suspicion("label-case", "set data.text_case=upper")]
    course = [(step, 3.0, 1.0, 1.0) for step in range(10, 101, 10)]
    ((name, advice),) = run(CollapseMonitor(doubts), course)
    assert name == "blank-collapse"
    assert "at step 40 of 100" in advice and "100% of the hypotheses are empty" in advice
    assert "(label-case) set data.text_case=upper" in advice


def test_the_last_evaluation_needs_no_second():
    course = [(50, 1.0, 1, 0.0), (100, 3.0, 1, 0.95)]
    assert len(run(CollapseMonitor(), course)) == 1


@pytest.mark.parametrize(
    ("losses", "norm", "cause"),
    [
        ((3.0, 2.5, 6.0, 7.0), 1.0, "learning-rate"),
        ((3.0, 3.0, 3.0, 3.0), 500.0, "learning-rate"),
        ((9.0, 5.0, 3.0, 2.8), 1.0, "too-few-updates"),
        ((3.0, 3.0, 3.0, 3.0), 1.0, "nothing-learnt"),
    ],
)
def test_causes_are_read_off_the_course(losses, norm, cause):
    course = [(25 * (i + 1), loss, norm, 1.0) for i, loss in enumerate(losses)]
    ((_, advice),) = run(CollapseMonitor(), course)
    assert f"({cause})" in advice


def test_without_evaluation_training_batches_are_watched():
    course = [(step, 3.0, 1.0, 1.0) for step in (20, 40, 60)]
    ((_, advice),) = run(CollapseMonitor(), course, eval_strategy="no")
    assert "100.0% of frames are blank" in advice
    usual = [(step, 3.0, 1.0, 0.97) for step in (20, 40, 60, 100)]
    assert run(CollapseMonitor(), usual, eval_strategy="no") == []


def test_a_resumed_run_does_not_tell_it_again():
    course = [(step, 3.0, 1.0, 1.0) for step in (40, 60)]
    first = CollapseMonitor()
    assert len(run(first, course)) == 1
    second = CollapseMonitor()
    second.load_state_dict(first.state_dict())
    assert run(second, [(80, 3.0, 1.0, 1.0)]) == []


@pytest.mark.parametrize(
    ("rate", "fine_tuning", "suspected"),
    [(1e-3, True, True), (1e-4, True, False), (2e-3, False, False), (0.1, False, True)],
)
def test_learning_rates(rate, fine_tuning, suspected):
    found = learning_rate_suspicion(rate, fine_tuning=fine_tuning)
    assert (found is not None) is suspected
    if found:
        assert found.name == "learning-rate" and f"{rate:g}" in found.text
