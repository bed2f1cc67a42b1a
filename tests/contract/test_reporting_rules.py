"""C9 and E2: uploads to a hub, reporters, and the watch over a run's health."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub.constants
import pytest
import torch
from recipes import (
    RECIPES,
    WRAPPED,
    Frames,
    Gan,
    GanAdapter,
    Remembering,
    Wrapped,
    arguments,
    collate,
    gan_spec,
    same,
    seeded,
    trainer_for,
    weights,
)
from reporting import Notebook, alerts, plant

from voicehub.errors import ConfigurationError, OptionalDependencyError
from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.callbacks import EVENTS, TrainerCallback
from voicehub.trainer.health import HealthCallback
from voicehub.trainer.media import Audio, Text
from voicehub.trainer.reporter import require_library
from voicehub.trainer.trainer import Trainer
from voicehub_hf.hub.background import ATTEMPTS, BackgroundUploads
from voicehub_hf.hub.loopback import Hub, serve_hub

SECRET = "ContractSecretOfTheTests"
PUSHING: dict[str, Any] = {
    "push_to_hub": True,
    "hub_model_id": "tester/toy",
    "save_strategy": "steps",
    "save_steps": 1,
}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub on loopback that the environment points to; second attempts follow at once."""
    with serve_hub() as state:
        monkeypatch.setenv("HF_ENDPOINT", state.url)
        monkeypatch.setenv("HF_TOKEN", f"hf_{SECRET}")
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setitem(BackgroundUploads.__init__.__kwdefaults__, "first_delay", 0.0)
        yield state


def uploads_of(trainer: Trainer) -> BackgroundUploads:
    (found,) = [
        callback.reporter.uploads
        for callback in trainer.callbacks.callbacks
        if getattr(callback, "name", "") == "hub"
    ]
    return found  # type: ignore[no-any-return]


def pushing(recipe: str, directory: Path, source: Path, **settings: Any) -> Trainer:
    """A Trainer of a toy recipe, or of the toy wrapper with its native export."""
    if recipe != "wrapped":
        return trainer_for(recipe, directory, **{**PUSHING, **settings})
    model = Wrapped(source)
    return Trainer(
        model=model,
        args=arguments(directory, **{**PUSHING, **settings}),
        data_collator=collate,
        train_dataset=Frames(22),
        training_adapter=Remembering(model, WRAPPED),
    )


class TestC9:
    """Uploads to a model hub."""

    @pytest.mark.parametrize("recipe", [*RECIPES, "wrapped"])
    def test_C9_the_final_model_of_every_recipe_arrives_whole_and_private(
        self, hub: Hub, tmp_path: Path, checkpoint_dir: Path, recipe: str
    ) -> None:
        trainer = pushing(recipe, tmp_path / "run", checkpoint_dir)
        trainer.train()
        assert hub.repositories == {"tester/toy": True}
        (commit,) = hub.commits
        final = trainer.run_dir / "final-model"
        assert commit.files == {
            path.relative_to(final).as_posix(): path.read_bytes()
            for path in final.rglob("*")
            if path.is_file()
        }
        assert ("native_export/config.json" in commit.files) == (recipe == "wrapped")
        has_state = recipe in ("gan", "wrapped")
        assert ("recipe_state.safetensors" in commit.files) == has_state
        assert alerts(trainer) == []

    def test_C9_a_public_repository_only_when_asked(self, hub: Hub, tmp_path: Path) -> None:
        hub.repositories["tester/toy"] = False
        trainer = trainer_for("plain", tmp_path / "private", **PUSHING)
        trainer.train()
        assert not hub.commits and "is public" in alerts(trainer)[0]
        settings = {**PUSHING, "hub_private_repo": False}
        trainer_for("plain", tmp_path / "public", **settings).train()
        assert len(hub.commits) == 1

    def test_C9_every_save_sends_complete_checkpoints_alone(self, hub: Hub, tmp_path: Path) -> None:
        trainer = trainer_for("plain", tmp_path / "run", hub_strategy="every_save", **PUSHING)
        half = trainer.run_dir / "checkpoint-9"
        half.mkdir(parents=True)
        (half / "config.json").write_text("{}")

        class Wait(TrainerCallback):
            def on_checkpoint_saved(self, *_: Any, **context: Any) -> None:
                assert uploads_of(trainer).wait(60)

        trainer.fire("on_checkpoint_saved", checkpoint=half, trainer=trainer)
        assert uploads_of(trainer).wait(60) and not hub.commits
        trainer.add_callback(Wait())
        trainer.train()
        sent = [commit.message for commit in hub.commits]
        assert sent == ["checkpoint-1", "checkpoint-2", "checkpoint-3", "final model"]
        names = {Path(name).name for commit in hub.commits[:3] for name in commit.files}
        assert "model_state.safetensors" in names
        assert not [name for name in names if name.endswith((".pt", ".pth"))]

    def test_C9_training_goes_on_while_an_upload_is_under_way(
        self, hub: Hub, tmp_path: Path
    ) -> None:
        hub.gate.clear()  # the hub answers nothing until the last save

        class Watch(TrainerCallback):
            updates = 0

            def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                self.updates += hub.arrived.is_set() and not hub.commits
                if state.global_step == 6:
                    hub.gate.set()

            def on_checkpoint_saved(self, *_: Any, **context: Any) -> None:
                assert hub.arrived.wait(60)

        watch = Watch()
        trainer = trainer_for(
            "plain",
            tmp_path / "run",
            hub_strategy="every_save",
            options={"callbacks": [watch]},
            **{**PUSHING, "max_steps": 6},
        )
        trainer.train()
        assert watch.updates >= 3 and hub.commits[-1].message == "final model"

    def test_C9_failures_are_retried_then_shown_and_stop_nothing(
        self, hub: Hub, tmp_path: Path
    ) -> None:
        hub.fail = [500, 429]
        trainer = trainer_for("plain", tmp_path / "passing", **PUSHING)
        trainer.train()
        assert len(hub.commits) == 1 and alerts(trainer) == []
        hub.fail = [500] * 20
        trainer = trainer_for("plain", tmp_path / "staying", **PUSHING)
        assert trainer.train().global_step == 3
        assert len(hub.commits) == 1 and len(hub.fail) == 20 - ATTEMPTS
        (alert,) = alerts(trainer)
        assert alert.startswith("hub-upload: final model") and "by hand" in alert

    @pytest.mark.parametrize("status", [200, 401])
    def test_C9_the_token_is_in_the_environment_alone(
        self, hub: Hub, tmp_path: Path, caplog: pytest.LogCaptureFixture, status: int,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        hub.fail = [status] * 20
        caplog.set_level(logging.DEBUG)
        trainer = trainer_for("plain", tmp_path / "run", hub_strategy="every_save", **PUSHING)
        trainer.train()
        assert hub.authorizations == {f"Bearer hf_{SECRET}"}
        files = [path for path in trainer.run_dir.rglob("*") if path.is_file()]
        assert files and not [path for path in files if SECRET.encode() in path.read_bytes()]
        assert SECRET not in caplog.text and SECRET not in str(trainer.state.log_history)
        monkeypatch.delenv("HF_TOKEN")
        with pytest.raises(ConfigurationError, match="environment variable HF_TOKEN"):
            trainer_for("plain", tmp_path / "other", **PUSHING)
        with pytest.raises(ConfigurationError, match="hub_token"):
            arguments(tmp_path / "other", push_to_hub=True, hub_token="x")


class TestE2:
    """Reporters and health."""

    def test_E2_numbers_by_phase_media_and_alerts(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        notebook = Notebook()
        plant(monkeypatch, toy=lambda args: notebook)
        trainer = trainer_for(
            "gan",
            tmp_path / "run",
            report_to="toy",
            options={"eval_dataset": {"dev": Frames(4, seed=1)}},
            eval_strategy="steps",
            eval_steps=3,
        )
        assert notebook.opened == []  # nothing before there is something to report
        trainer.train()
        assert notebook.opened == [None] and notebook.closed == [False]
        numbers = [row for _, row in notebook.scalars]
        logged = [row for row in trainer.state.log_history if "loss" in row]
        assert [step for step, _ in notebook.scalars] == [1, 2, 3, 3]
        for name in ("loss", "loss/discriminator/loss", "loss/generator/loss", "learning_rate/d"):
            assert [row[f"train/{name}"] for row in numbers[:3]] == [row[name] for row in logged]
        assert (
            "train/loss/auxiliary/loss" in numbers[1]
            and "train/loss/auxiliary/loss" not in numbers[0]
        )
        evaluated = next(row for row in trainer.state.log_history if "eval_loss" in row)
        assert numbers[3]["eval/dev/loss"] == evaluated["eval_dev_loss"]
        trainer.log_media({"eval/sample": Audio(torch.zeros(8), 8000)})
        trainer.alert("odd", "look at it")
        assert notebook.media["alert"] == Text("odd: look at it.")
        assert isinstance(notebook.media["eval/sample"], Audio)

    def test_E2_a_logged_loss_is_the_mean_over_the_updates_of_its_phase(
        self, tmp_path: Path
    ) -> None:
        """The auxiliary phase is part of every third update alone; windows do not mix."""
        rows = {}
        for every in (1, 4):
            trainer = trainer_for("gan", tmp_path / str(every), max_steps=8, logging_steps=every)
            trainer.train()
            rows[every] = [row for row in trainer.state.log_history if "loss" in row]
        assert len(rows[4]) == 2
        for row, single in zip(rows[4], (rows[1][:4], rows[1][4:]), strict=True):
            for name in ("loss", "loss/discriminator/loss", "loss/auxiliary/loss"):
                values = [one[name] for one in single if name in one]
                assert (
                    len(values)
                    == {"loss/auxiliary/loss": {4: 1, 8: 2}}.get(name, {4: 4, 8: 4})[row["step"]]
                )
                assert row[name] == pytest.approx(sum(values) / len(values), rel=1e-12)
            assert row["num_items"] == sum(one["num_items"] for one in single)

    def test_E2_a_phase_whose_update_was_dropped_is_not_in_the_mean(self, tmp_path: Path) -> None:
        class Poisoned(GanAdapter):
            """The generator's loss is NaN in the second update."""

            def training_step_loss(self, inputs: Any, phase: Any) -> dict[str, Any]:
                output = super().training_step_loss(inputs, phase)
                assert self.context is not None
                if phase.name == "generator" and self.context.step == 1:
                    output["loss"] = output["loss"] * math.nan
                return output

        model = seeded(Gan)
        trainer = Trainer(
            model=model,
            args=arguments(tmp_path / "run", logging_steps=3),
            data_collator=collate,
            train_dataset=Frames(22),
            training_adapter=Poisoned(model, gan_spec(auxiliary=False)),
        )
        trainer.train()
        (row,) = [row for row in trainer.state.log_history if "loss" in row]
        assert row["skipped_steps"] == 1
        numbers = [value for key, value in row.items() if key.startswith(("loss", "grad_norm"))]
        assert len(numbers) == 4 and all(map(math.isfinite, numbers))

    def test_E2_only_the_world_primary_reports(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        notebook = Notebook()
        plant(monkeypatch, toy=lambda args: notebook)
        trainer = trainer_for("plain", tmp_path / "run", report_to="toy")
        trainer.state.is_world_process_zero = False
        trainer.train()
        assert notebook.opened == notebook.scalars == notebook.closed == []

    def test_E2_a_resume_continues_the_same_run(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first, second = Notebook(), Notebook()
        settings: dict[str, Any] = {
            "report_to": "toy", "max_steps": 4, "save_strategy": "steps", "save_steps": 2,
        }  # fmt: skip
        plant(monkeypatch, toy=lambda args: first)
        trainer_for("plain", tmp_path / "run", **settings).train()
        plant(monkeypatch, toy=lambda args: second)
        resumed = trainer_for("plain", tmp_path / "resumed", **settings)
        resumed.train(resume_from_checkpoint=tmp_path / "run" / "checkpoint-2")
        assert (first.opened, second.opened) == ([None], ["the-run"])
        assert [step for step, _ in second.scalars] == [3, 4]

    @pytest.mark.parametrize("event", ["on_train_begin", "on_log", "on_checkpoint_saved"])
    def test_E2_a_reporter_that_fails_warns_once_and_stops_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, event: str
    ) -> None:
        assert event in EVENTS
        calls = []

        def fail(*_: Any, **context: Any) -> None:
            calls.append(event)
            raise ConnectionError("no route to host")

        failing = type("Failing", (TrainerCallback,), {event: fail})
        plant(monkeypatch, toy=lambda args: failing())
        settings: dict[str, Any] = {"save_strategy": "steps", "save_steps": 1}
        trainer = trainer_for("plain", tmp_path / "run", report_to="toy", **settings)
        trainer.train()
        alone = trainer_for("plain", tmp_path / "alone", **settings)
        alone.train()
        assert calls and same(weights(trainer), weights(alone))
        (alert,) = alerts(trainer)
        assert alert.startswith(f"reporter-failed: the reporter 'toy' failed at {event}")

    def test_E2_what_is_not_installed_is_an_error_at_the_start(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plant(monkeypatch, tensorboard=lambda args: Notebook())
        with pytest.raises(ConfigurationError, match="Install 'voicehub-wandb'"):
            trainer_for("plain", tmp_path / "run", report_to="wandb")
        with pytest.raises(OptionalDependencyError, match="pip install no_such_library"):
            require_library("toy", "no_such_library")

    def test_E2_trouble_raises_a_named_alert_once_and_health_none(self) -> None:
        def raised(curve: Any) -> list[str]:
            """Alerts of (loss, gradient norm, evaluation loss or None) every ten steps."""
            found: list[str] = []
            watch = HealthCallback(lambda name, advice: found.append(name))
            args = TrainingArguments(warmup_steps=20, logging_steps=10)
            state: Any = SimpleNamespace(global_step=0, max_steps=1000)
            for n, (loss, norm, evaluation) in enumerate(curve, start=1):
                state.global_step = 10 * n
                watch.on_log(args, state, None, logs={"loss": loss, "grad_norm": norm})  # type: ignore[arg-type]
                if evaluation is not None:
                    watch.on_evaluate(args, state, None, metrics={"eval_loss": evaluation})  # type: ignore[arg-type]
            return found

        times = range(60)
        assert raised((math.exp(-n / 30), 5.0, math.exp(-n / 40)) for n in times) == []
        assert raised((2.3 + 0.01 * math.sin(n), 5.0, None) for n in times) == ["flat-loss"]
        assert raised((math.exp(-n / 30), 101.0, None) for n in times) == ["large-gradients"]
        assert raised((math.exp(-n / 30), 5.0, 1.0 + n) for n in times) == ["overfitting"]

    def test_E2_values_that_are_not_finite_raise_an_alert(self, tmp_path: Path) -> None:
        data = Frames(22)
        data.items[3]["targets"] = data.items[3]["targets"] * math.nan
        trainer = trainer_for(
            "plain", tmp_path / "run", data=data, num_train_epochs=2, max_steps=-1
        )
        trainer.train()
        (alert,) = alerts(trainer)
        assert alert.startswith("not-finite: an update was skipped because the loss is nan")
        assert trainer.state.skipped_steps == 2

    def test_E2_a_warmup_longer_than_the_run_is_refused(self, tmp_path: Path) -> None:
        trainer = trainer_for("plain", tmp_path / "run", lr_scheduler_type="linear", warmup_steps=3)
        with pytest.raises(ConfigurationError, match="warm"):
            trainer.train()
