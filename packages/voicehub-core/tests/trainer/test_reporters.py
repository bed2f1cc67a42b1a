"""Reporters: found by name, configured by their own options, and never able to stop a run (E2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pydantic import BaseModel, ConfigDict

from voicehub.checkpoints.reader import open_checkpoint
from voicehub.errors import ConfigurationError, OptionalDependencyError
from voicehub.trainer import reporters
from voicehub.trainer.callbacks import EVENTS, TrainerCallback
from voicehub.trainer.media import Audio, Image, Media, Text
from voicehub.trainer.metrics_file import read_metrics
from voicehub.trainer.reporter import Reporter, namespaced, require_library
from voicehub.trainer.reporter_options import parse_options
from voicehub.trainer.reporters import GIVE_UP_AFTER


class Recorder(Reporter):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str | None] = []
        self.closed: list[bool] = []
        self.scalars: list[tuple[int, dict[str, float]]] = []
        self.media: dict[str, Media] = {}

    def open_run(self, args: Any, state: Any, run_id: str | None, **context: Any) -> str:
        assert len(self.opened) == len(self.closed)
        self.opened.append(run_id)
        return run_id or f"run-{len(self.opened)}"

    def write_scalars(self, values: Mapping[str, float], step: int) -> None:
        assert len(self.opened) == len(self.closed) + 1
        self.scalars.append((step, dict(values)))

    def write_media(self, media: Mapping[str, Media], step: int) -> None:
        self.media.update(media)

    def close_run(self, *, failed: bool) -> None:
        self.closed.append(failed)


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``plant(name=factory)`` instead of the installed reporters."""

    def planted(**factories: Callable[[Any], Any]) -> None:
        monkeypatch.setattr(reporters.loading, "names", lambda group: tuple(factories))
        monkeypatch.setattr(reporters.loading, "load", lambda group, name: factories[name])

    return planted


def alerts_of(trainer: Any) -> list[str]:
    rows = read_metrics(trainer.run_dir / "metrics.jsonl")
    return [row["alert"] for row in rows if "alert" in row]


# -- what is reported ------------------------------------------------------------------------


def test_a_run_is_reported_under_its_names(toy: SimpleNamespace, plant: Any) -> None:
    recorder = Recorder()
    plant(toy=lambda args: recorder)
    splits = {"dev": toy.Frames(4, seed=1), "dev_other": toy.Frames(4, seed=2)}
    trainer = toy.run(
        max_steps=3,
        report_to="toy",
        eval_strategy="steps",
        eval_steps=3,
        trainer={"eval_dataset": splits},
    )
    assert recorder.opened == [None] and recorder.closed == [False]
    rows = [row for _, row in recorder.scalars]
    assert [step for step, _ in recorder.scalars] == [1, 2, 3, 3]
    logged = [row for row in trainer.state.log_history if "loss" in row]
    assert [row["train/loss"] for row in rows[:3]] == [row["loss"] for row in logged]
    assert all(row["train/global_step"] == step for step, row in recorder.scalars)
    assert {"train/learning_rate", "train/grad_norm", "train/epoch"} <= rows[0].keys()
    assert not any(name.endswith(("/step", "/time")) for row in rows for name in row)
    evaluated = next(row for row in trainer.state.log_history if "eval_loss" in row)
    assert rows[3]["eval/dev_other/loss"] == evaluated["eval_dev_other_loss"]
    assert rows[3]["eval/dev/loss"] == evaluated["eval_dev_loss"]
    assert rows[3]["eval/loss"] == evaluated["eval_loss"]

    metrics = trainer.predict(toy.Frames(4)).metrics
    assert recorder.scalars[-1][1]["test/loss"] == metrics["test_loss"]
    # After the end the same run is opened for it, and closed again.
    assert recorder.opened == [None, "run-1"] and recorder.closed == [False, False]


@pytest.mark.parametrize(
    ("row", "prefix", "splits", "expected"),
    [
        ({"loss": 1, "step": 3, "time": 9.0, "note": "x", "flag": True}, None, (), {"loss": 1.0}),
        ({"loss/kl": 2.0}, None, (), {"loss/kl": 2.0}),
        ({"eval_wer": 0.5, "step": 3}, "eval", ("",), {"eval/wer": 0.5}),
        ({"eval_a_b_wer": 0.5}, "eval", ("a", "a_b"), {"eval/a_b/wer": 0.5}),
        ({"eval_a_b_wer": 0.5}, "eval", ("a",), {"eval/a/b_wer": 0.5}),
        ({"eval_a.b_wer": 0.5, "eval_axb_wer": 1}, "eval", ("a.b",), None),
        ({"dev_wer": 0.5, "epoch": 1.0}, "dev", ("",), {"dev/wer": 0.5}),
    ],
)
def test_names(row: Any, prefix: Any, splits: Any, expected: Any) -> None:
    if expected is None:
        expected = {"eval/a.b/wer": 0.5, "eval/axb_wer": 1.0}
    elif prefix is None:
        expected = {f"train/{name}": value for name, value in expected.items()}
    assert namespaced(row, prefix, splits) == expected


def test_media_and_alerts_reach_the_reporter(toy: SimpleNamespace, plant: Any) -> None:
    recorder = Recorder()
    plant(toy=lambda args: recorder)

    class Shows(TrainerCallback):
        def on_step_end(self, *_: Any, **context: Any) -> None:
            trainer = context["trainer"]
            assert trainer.wants_media
            trainer.log_media(
                {
                    "eval/audio": Audio(torch.zeros(8), 8000),
                    "eval/mel": Image.of_matrix(torch.rand(2, 3)),
                    "eval/text": Text("hello"),
                }
            )
            trainer.alert("odd", "look at it")

    toy.run(max_steps=1, report_to="toy", trainer={"callbacks": [Shows()]})
    assert recorder.media.keys() == {"eval/audio", "eval/mel", "eval/text", "alert"}
    assert recorder.media["alert"] == Text("odd: look at it.")


def test_nobody_wants_media_without_a_reporter(toy: SimpleNamespace) -> None:
    trainer = toy.run(max_steps=1)
    assert not trainer.wants_media
    trainer.log_media({"text": Text("nobody sees it")})


def test_other_processes_report_nothing(toy: SimpleNamespace, plant: Any) -> None:
    recorder = Recorder()
    plant(toy=lambda args: recorder)

    def second(trainer: Any) -> None:
        trainer.state.is_world_process_zero = False

    toy.run(max_steps=2, report_to="toy", prepare=second)
    assert recorder.opened == recorder.scalars == recorder.closed == []


# -- resume and errors -----------------------------------------------------------------------


def test_a_resume_continues_the_same_run(toy: SimpleNamespace, plant: Any) -> None:
    first, second = Recorder(), Recorder()
    plant(toy=lambda args: first)
    settings = {"report_to": "toy", "save_strategy": "steps", "save_steps": 2, "max_steps": 4}
    trainer = toy.run(**settings)
    plant(toy=lambda args: second)
    resumed = toy.run(
        **settings, resume=trainer.run_dir / "checkpoint-2", output_dir=str(toy.path / "resumed")
    )
    assert second.opened == ["run-1"] and resumed.state.global_step == 4
    assert [step for step, _ in second.scalars] == [3, 4]


def test_reporters_may_come_and_go_with_a_resume(toy: SimpleNamespace, plant: Any) -> None:
    """They watch; the exact resume does not depend on them."""
    plant(a=lambda args: Recorder(), b=lambda args: Recorder())
    settings = {"save_strategy": "steps", "save_steps": 2, "max_steps": 4}
    trainer = toy.run(report_to=["a", "b"], **settings)
    for position, names in enumerate((["b"], [], ["b", "a"])):
        resumed = toy.run(
            report_to=names,
            resume=trainer.run_dir / "checkpoint-2",
            output_dir=str(toy.path / f"resumed-{position}"),
            **settings,
        )
        final, expected = toy.weights(resumed.model), toy.weights(trainer.model)
        assert all(torch.equal(final[name], expected[name]) for name in expected)


def test_a_run_that_fails_is_closed_as_failed(toy: SimpleNamespace, plant: Any) -> None:
    recorder = Recorder()
    plant(toy=lambda args: recorder)

    class Fails(TrainerCallback):
        def __init__(self, event: str) -> None:
            setattr(self, event, self.fail)

        def fail(self, *_: Any, **context: Any) -> None:
            raise KeyboardInterrupt

    for event in ("on_train_begin", "on_step_end"):
        with pytest.raises(KeyboardInterrupt):
            toy.run(max_steps=2, report_to="toy", trainer={"callbacks": [Fails(event)]})
    assert recorder.closed == [True, True]


# -- failures --------------------------------------------------------------------------------


@pytest.mark.parametrize("event", [e for e in EVENTS if e != "on_train_error"])
def test_a_reporter_that_raises_warns_once_and_stops_nothing(
    toy: SimpleNamespace, plant: Any, event: str, caplog: pytest.LogCaptureFixture
) -> None:
    calls = []

    class Raises(TrainerCallback):
        pass

    def fail(self: Any, *_: Any, **context: Any) -> None:
        calls.append(event)
        raise RuntimeError("no route to host")

    setattr(Raises, event, fail)
    plant(broken=lambda args: Raises())

    class Rings(TrainerCallback):
        def on_step_end(self, *_: Any, **context: Any) -> None:
            context["trainer"].log_media({"a": Text("b")})
            context["trainer"].alert("rung", "at every step")

    data = toy.Frames(8)
    trainer = toy.run(
        max_steps=2,
        train=data,
        report_to="broken",
        eval_strategy="steps",
        eval_steps=1,
        save_strategy="steps",
        save_steps=1,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        trainer={"eval_dataset": data, "callbacks": [Rings()]},
    )
    trainer.predict(data)
    assert trainer.state.global_step == 2
    if event == "on_step_skipped":
        assert not calls
        return
    assert calls
    warnings = [r.getMessage() for r in caplog.records if "no route to host" in r.getMessage()]
    warnings = [text for text in warnings if "'broken' failed at" in text]
    assert len(warnings) == 1 and event in warnings[0]
    if event not in ("on_init_end", "on_predict"):
        assert [a for a in alerts_of(trainer) if a.startswith("reporter-failed")] == [
            f"reporter-failed: the reporter 'broken' failed at {event} (RuntimeError: no route to "
            "host). Training goes on; later failures of it are shown in the debug log alone."
        ]


def test_a_reporter_that_raises_hides_no_error(toy: SimpleNamespace, plant: Any) -> None:
    class Raises(TrainerCallback):
        def on_train_error(self, *_: Any, **context: Any) -> None:
            raise RuntimeError("of the reporter")

    class Fails(TrainerCallback):
        def on_step_end(self, *_: Any, **context: Any) -> None:
            raise OSError("of the run")

    plant(broken=lambda args: Raises())
    with pytest.raises(OSError, match="of the run"):
        toy.run(max_steps=2, report_to="broken", trainer={"callbacks": [Fails()]})


def test_a_run_that_cannot_be_opened_is_tried_once(toy: SimpleNamespace, plant: Any) -> None:
    class Closed(Recorder):
        attempts = 0

        def open_run(self, *_: Any, **context: Any) -> str:
            self.attempts += 1
            raise ConnectionError("refused")

    closed = Closed()
    plant(toy=lambda args: closed)
    trainer = toy.run(max_steps=4, report_to="toy")
    assert closed.attempts == 1 and closed.scalars == closed.closed == []
    assert len(alerts_of(trainer)) == 1


def test_after_failures_in_a_row_it_is_left_alone_but_closed(
    toy: SimpleNamespace, plant: Any
) -> None:
    class Breaks(Recorder):
        writes = 0

        def write_scalars(self, values: Mapping[str, float], step: int) -> None:
            self.writes += 1
            raise OSError("disk full")

    breaks = Breaks()
    plant(toy=lambda args: breaks)
    toy.run(max_steps=GIVE_UP_AFTER + 6, report_to="toy")
    # The first failure made an alert: its row failed too, its text was written well.
    assert breaks.writes == 2 + GIVE_UP_AFTER
    assert breaks.closed == [False]


def test_state_that_cannot_be_stored_stops_nothing(toy: SimpleNamespace, plant: Any) -> None:
    class Odd(Recorder):
        def state_dict(self) -> dict[str, Any]:
            return {"handle": object()}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            raise AssertionError("there is nothing to load")

    plant(toy=lambda args: Odd())
    settings = {"report_to": "toy", "save_strategy": "steps", "save_steps": 1, "max_steps": 2}
    trainer = toy.run(**settings)
    runtime = open_checkpoint(trainer.run_dir / "checkpoint-1").runtime()
    assert runtime["callbacks"]["reporter:toy"] == {}
    assert "state_dict" in alerts_of(trainer)[0]
    toy.run(**settings, resume=trainer.run_dir / "checkpoint-1", output_dir=str(toy.path / "on"))


# -- settings --------------------------------------------------------------------------------


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid")
    project: str | None = None
    tags: list[str] = []


def test_names_of_wandb_are_options_of_its_reporter(toy: SimpleNamespace) -> None:
    args = toy.arguments(
        report_to="wandb",
        wandb_project="recogniser",
        wandb_entity=None,
        reporter_options={"wandb": {"tags": ["a"]}},
    )
    assert args.reporter_options == {"wandb": {"project": "recogniser", "tags": ["a"]}}
    assert type(args).from_dict(args.to_dict()).reporter_options == args.reporter_options
    assert parse_options(args, "wandb", Options).project == "recogniser"
    with pytest.raises(ConfigurationError, match="not both"):
        toy.arguments(wandb_tags=["b"], reporter_options={"wandb": {"tags": ["a"]}})
    with pytest.raises(ConfigurationError, match=r"wandb_projct.*wandb_project"):
        toy.arguments(wandb_projct="x")


def test_unknown_and_unread_options(toy: SimpleNamespace, plant: Any) -> None:
    plant(toy=lambda args: parse_options(args, "toy", Options) and Recorder())
    with pytest.raises(ConfigurationError, match=r"reporter_options.toy: .*'projct'.*'project'"):
        toy.run(report_to="toy", reporter_options={"toy": {"projct": "x"}})
    with pytest.raises(ConfigurationError, match="which report_to does not name"):
        toy.run(reporter_options={"toy": {"project": "x"}})
    with pytest.raises(ConfigurationError, match=r"'tags'.*got 3"):
        toy.run(report_to="toy", reporter_options={"toy": {"tags": 3}})


def test_what_is_not_installed_is_an_error_at_the_start(toy: SimpleNamespace, plant: Any) -> None:
    plant(tensorboard=lambda args: Recorder())
    with pytest.raises(ConfigurationError, match=r"Install 'voicehub-wandb'"):
        toy.run(report_to="wandb")
    with pytest.raises(ConfigurationError, match=r"Did you mean 'tensorboard'"):
        toy.run(report_to="tensorbord")
    with pytest.raises(ConfigurationError, match=r"Install 'voicehub-hf'"):
        toy.run(push_to_hub=True)
    with pytest.raises(OptionalDependencyError, match="pip install no_such_sdk"):
        require_library("toy", "no_such_sdk")


def test_all_means_every_installed_one_but_no_uploads(toy: SimpleNamespace, plant: Any) -> None:
    recorders = {name: Recorder() for name in ("a", "b", "hub")}
    plant(**{name: lambda args, r=recorder: r for name, recorder in recorders.items()})
    toy.run(max_steps=1, report_to="all")
    assert [len(recorder.opened) for recorder in recorders.values()] == [1, 1, 0]
    with pytest.raises(ConfigurationError, match="push_to_hub"):
        toy.run(max_steps=1, report_to="hub")


def test_hub_settings_that_nothing_would_read(toy: SimpleNamespace) -> None:
    with pytest.raises(ConfigurationError, match="set push_to_hub=True"):
        toy.arguments(hub_model_id="me/model")
    with pytest.raises(ConfigurationError, match="needs a save_strategy"):
        toy.arguments(push_to_hub=True, hub_strategy="every_save", save_strategy="no")


def test_the_final_model_is_written_once_for_all(toy: SimpleNamespace) -> None:
    trainer = toy.run(max_steps=1, save_strategy="steps", save_steps=1)
    path = trainer.save_final_model()
    marker = path / "marker"
    marker.touch()
    assert trainer.save_final_model() == path and marker.exists()
    trainer.load_weights(trainer.run_dir / "checkpoint-1")
    trainer.save_final_model()
    assert not marker.exists()
