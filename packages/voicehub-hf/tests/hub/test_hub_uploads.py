"""Uploads to a hub: what arrives, when, how failures show, and that the token stays away (C9)."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load

from voicehub.errors import ConfigurationError
from voicehub.trainer.callbacks import TrainerCallback
from voicehub.trainer.metrics_file import read_metrics
from voicehub_hf.hub import background
from voicehub_hf.hub.background import BackgroundUploads
from voicehub_hf.hub.repository import describe, is_final
from voicehub_hf.hub.staging import Upload, stage

REPOSITORY = "tester/line"


@pytest.fixture(autouse=True)
def no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Second attempts follow at once."""
    defaults = BackgroundUploads.__init__.__kwdefaults__
    monkeypatch.setitem(defaults, "first_delay", 0.0)


def alerts_of(trainer: Any) -> list[str]:
    rows = read_metrics(trainer.run_dir / "metrics.jsonl")
    return [row["alert"] for row in rows if "alert" in row]


def holds_token(directory: Path) -> list[Path]:
    from_environment = b"LoopbackSecretOfTheTests"
    return [
        path
        for path in directory.rglob("*")
        if path.is_file() and from_environment in path.read_bytes()
    ]


def test_the_final_model_arrives_in_a_private_repository(hub: Any, make_trainer: Any) -> None:
    trainer = make_trainer(push_to_hub=True, hub_model_id=REPOSITORY)
    trainer.train()
    assert hub.repositories == {REPOSITORY: True}
    assert hub.authorizations == {"Bearer hf_LoopbackSecretOfTheTests"}
    (commit,) = hub.commits
    assert commit.message == "final model"
    local = trainer.run_dir / "final-model"
    assert commit.files == {
        path.relative_to(local).as_posix(): path.read_bytes()
        for path in local.rglob("*")
        if path.is_file()
    }
    assert any(path.endswith(".safetensors") for path in commit.files)
    assert alerts_of(trainer) == []
    assert not list(trainer.run_dir.glob(".hub-upload-*"))


def test_every_save_sends_complete_checkpoints_without_pickles(hub: Any, make_trainer: Any) -> None:
    trainer = make_trainer(push_to_hub=True, hub_model_id=REPOSITORY, hub_strategy="every_save")

    class WaitForUpload(TrainerCallback):
        """So that no checkpoint is replaced by a newer one."""

        def on_checkpoint_saved(self, *_: Any, **context: Any) -> None:
            assert reporter(trainer).uploads.wait(60)

    trainer.add_callback(WaitForUpload())
    trainer.train()
    messages = [commit.message for commit in hub.commits]
    assert messages == ["checkpoint-2", "checkpoint-4", "checkpoint-6", "final model"]
    for commit in hub.commits[:3]:
        names = [Path(path).name for path in commit.files]
        assert all(path.startswith("last-checkpoint/") for path in commit.files)
        assert not [n for n in names if n.endswith((".pt", ".pth", ".pkl")) or n.startswith(".")]
        assert "trainer_state.json" in names
    weights = load(hub.commits[2].files["last-checkpoint/model_state.safetensors"])
    current = trainer.graph.adapter.state_dict()
    assert all(torch.equal(weights[name], current[name]) for name in current)


def reporter(trainer: Any) -> Any:
    (found,) = [
        callback.reporter
        for callback in trainer.callbacks.callbacks
        if getattr(callback, "name", "") == "hub"
    ]
    return found


def test_training_goes_on_while_one_upload_is_under_way(hub: Any, make_trainer: Any) -> None:
    """The hub does not answer until training is over; rotation deletes what is being sent."""
    hub.gate.clear()

    class OpenAtTheLastSave(TrainerCallback):
        steps_while_waiting = 0

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if hub.arrived.is_set():
                assert not hub.commits
                self.steps_while_waiting += 1

        def on_checkpoint_saved(self, *_: Any, **context: Any) -> None:
            assert hub.arrived.wait(60)
            if context["checkpoint"].name == "checkpoint-6":
                assert not hub.commits
                assert not (context["checkpoint"].parent / "checkpoint-2").exists()
                hub.gate.set()

    watch = OpenAtTheLastSave()
    trainer = make_trainer(
        [watch],
        push_to_hub=True,
        hub_model_id=REPOSITORY,
        hub_strategy="every_save",
        save_total_limit=1,
    )
    trainer.train()
    assert watch.steps_while_waiting >= 2
    assert hub.most_concurrent == 1
    # What waited while checkpoint-2 was on its way gave way to what was newer.
    messages = [commit.message for commit in hub.commits]
    assert messages[0] == "checkpoint-2" and messages[-1] == "final model"
    assert "checkpoint-4" not in messages
    assert "last-checkpoint/model_state.safetensors" in hub.commits[0].files
    assert alerts_of(trainer) == []


def test_failures_that_pass_are_retried(hub: Any, make_trainer: Any) -> None:
    hub.fail = [500, 503, 429]
    trainer = make_trainer(push_to_hub=True, hub_model_id=REPOSITORY)
    trainer.train()
    assert [commit.message for commit in hub.commits] == ["final model"]
    assert alerts_of(trainer) == []


def test_a_failure_that_stays_is_an_alert_and_stops_nothing(
    hub: Any, make_trainer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    hub.fail = [500] * 50
    trainer = make_trainer(push_to_hub=True, hub_model_id=REPOSITORY)
    output = trainer.train()
    assert output.global_step == 6 and not hub.commits
    assert len(hub.fail) == 50 - background.ATTEMPTS
    (alert,) = alerts_of(trainer)
    assert alert.startswith("hub-upload: final model") and "attempt 5" in alert
    assert "hf upload tester/line" in alert
    assert (trainer.run_dir / "final-model").is_dir()


def test_a_refusal_is_not_retried(hub: Any, make_trainer: Any) -> None:
    hub.fail = [403] * 50
    trainer = make_trainer(push_to_hub=True, hub_model_id=REPOSITORY)
    trainer.train()
    assert len(hub.fail) == 49
    assert "attempt 1" in alerts_of(trainer)[0] and "403" in alerts_of(trainer)[0]


def test_a_hub_that_cannot_be_reached_stops_nothing(
    hub: Any, make_trainer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # the discard port: nobody listens
    trainer = make_trainer(push_to_hub=True, hub_model_id=REPOSITORY)
    assert trainer.train().global_step == 6
    assert "hub-upload" in alerts_of(trainer)[0]


def test_a_public_repository_is_not_uploaded_to_unless_asked(hub: Any, make_trainer: Any) -> None:
    hub.repositories[REPOSITORY] = False
    trainer = make_trainer(push_to_hub=True, hub_model_id=REPOSITORY)
    trainer.train()
    assert not hub.commits and "is public" in alerts_of(trainer)[0]


def test_a_public_repository_on_request(hub: Any, make_trainer: Any) -> None:
    trainer = make_trainer(push_to_hub=True, hub_private_repo=False)
    trainer.train()
    assert hub.repositories == {"tester/run": False}  # the name of output_dir by default
    assert len(hub.commits) == 1


@pytest.mark.parametrize("status", [200, 401, 500])
def test_the_token_is_in_no_file_log_or_message(
    hub: Any, make_trainer: Any, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    hub.fail = [status] * 50
    caplog.set_level(logging.DEBUG)
    trainer = make_trainer(push_to_hub=True, hub_model_id=REPOSITORY, hub_strategy="every_save")
    trainer.train()
    assert holds_token(trainer.run_dir) == []
    assert "LoopbackSecretOfTheTests" not in caplog.text
    assert "LoopbackSecretOfTheTests" not in str(trainer.state.log_history)
    assert not any("LoopbackSecretOfTheTests" in str(commit.files) for commit in hub.commits)


def test_the_token_is_taken_out_of_errors(hub: Any) -> None:
    assert describe(RuntimeError("with hf_LoopbackSecretOfTheTests\nin it")) == (
        "RuntimeError: with (token) in it"
    )


def test_without_a_token_the_start_is_refused(
    hub: Any, make_trainer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(ConfigurationError, match="environment variable HF_TOKEN"):
        make_trainer(push_to_hub=True)
    with pytest.raises(ConfigurationError, match="hub_token.*HF_TOKEN"):
        make_trainer(push_to_hub=True, hub_token="x")


def test_a_run_that_fails_ends_without_waiting_for_retries(hub: Any, make_trainer: Any) -> None:
    hub.fail = [500] * 50

    class Fail(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == 5:
                raise RuntimeError("the power went")

    trainer = make_trainer(
        [Fail()], push_to_hub=True, hub_model_id=REPOSITORY, hub_strategy="every_save"
    )
    with pytest.raises(RuntimeError, match="the power went"):
        trainer.train()
    assert not hub.commits and not (trainer.run_dir / "final-model").exists()
    assert not list(trainer.run_dir.glob(".hub-upload-*"))


def test_leftovers_of_a_killed_process_are_removed(hub: Any, make_trainer: Any) -> None:
    trainer = make_trainer(push_to_hub=True, hub_model_id=REPOSITORY)
    litter = trainer.run_dir / ".hub-upload-0123456789ab"
    litter.mkdir(parents=True)
    (litter / "model.safetensors").write_bytes(b"half")
    trainer.train()
    assert not litter.exists() and len(hub.commits) == 1


def test_what_is_staged(tmp_path: Path) -> None:
    source = tmp_path / "checkpoint-1"
    (source / "native_export").mkdir(parents=True)
    kept = ["model_state.safetensors", "config.json", "lm.bin", "native_export/config.json"]
    left = [".complete", "optimizer.pt", "rng_state.pth", "pytorch_model.bin", "a.pkl"]
    for name in (*kept, *left):
        (source / name).write_text(name)
    upload = stage(source, tmp_path, title="t", path_in_repo="here")
    assert [name for name, _ in upload.files()] == sorted(f"here/{name}" for name in kept)
    assert upload.size == sum(len(name) for name in kept)
    upload.discard()
    assert not upload.directory.exists() and (source / "config.json").read_text() == "config.json"


def test_only_the_newest_waits(tmp_path: Path) -> None:
    gate, started, sent = threading.Event(), threading.Event(), []

    def send(upload: Upload) -> None:
        started.set()
        assert gate.wait(60)
        sent.append(upload.title)

    uploads = BackgroundUploads(send, is_final=is_final, describe=describe)
    source = tmp_path / "source"
    source.mkdir()
    staged = [stage(source, tmp_path, title=str(number)) for number in range(4)]
    uploads.submit(staged[0])
    assert started.wait(60)
    for upload in staged[1:]:
        uploads.submit(upload)
    gate.set()
    assert uploads.wait(60)
    assert sent == ["0", "3"] and uploads.take_failures() == []
    assert not any(upload.directory.exists() for upload in staged)


def test_an_incomplete_checkpoint_is_not_uploaded(hub: Any, make_trainer: Any) -> None:
    trainer = make_trainer(push_to_hub=True, hub_model_id=REPOSITORY, hub_strategy="every_save")
    half = trainer.run_dir / "checkpoint-9"
    half.mkdir(parents=True)
    (half / "config.json").write_text("{}")
    callback = reporter(trainer)
    context = {"checkpoint": half, "trainer": trainer}
    callback.on_checkpoint_saved(trainer.args, trainer.state, trainer.control, **context)
    assert callback.uploads.wait(60) and not hub.commits
    (half / ".complete").touch()
    callback.on_checkpoint_saved(trainer.args, trainer.state, trainer.control, **context)
    assert callback.uploads.wait(60) and len(hub.commits) == 1
