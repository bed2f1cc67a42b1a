"""`up`, `wait`, `machines` and `down`, with a provider of commands and a real sshd."""

from __future__ import annotations

import json
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from loopback_sshd import Host, make_key
from voicehub_remote.errors import (
    AuthenticationError,
    HostKeyError,
    RemoteTimeoutError,
    UnreachableError,
)
from voicehub_remote.providers.contract import Machine, MachineState, ProviderError
from voicehub_remote.providers.http import NoAnswerError
from voicehub_remote.waiting import Patience, wait_for_machine

from voicehub.cli.app import run


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VOICEHUB_MACHINES", str(tmp_path / "machines"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / "machines"


@pytest.fixture
def told(capfd: pytest.CaptureFixture[str]) -> Any:
    def call(*words: str, code: int = 0) -> Any:
        assert run(["remote", *words, "--json"]) == code
        last: dict[str, Any] = json.loads(capfd.readouterr().out.splitlines()[-1])
        return last if code == 0 else last["error"]["message"]

    return call


def test_from_up_to_down(sshd: Host, told: Any, folder: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    login = sshd.arguments[1:]
    up = f"touch {there}"
    state = f"if [ -e {there} ]; then echo {sshd.user}@127.0.0.1:{sshd.port}; else echo gone; fi"
    settings = ["--set", f"up={up}", "--set", f"state={state}", "--set", f"down=rm {there}"]
    made = told("up", "box", "--provider", "command", *settings)["machine"]
    assert (made["state"], made["target"]) == ("starting", None)
    assert stat.S_IMODE((folder / "box.json").stat().st_mode) == 0o600
    assert "was started already" in told("up", "box", "--provider", "command", *settings, code=2)
    assert "no address yet" in told("status", "box", *login, code=2)
    ready = told("wait", "box", *login, "--minutes", "1")["machine"]
    assert ready["target"] == f"{sshd.user}@127.0.0.1:{sshd.port}"
    listed = told("machines")["machines"]
    assert [(one["name"], one["state"]) for one in listed] == [("box", "running")]
    # Its name stands for the host.
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    deploy = ["--project", str(tmp_path), "--skip-setup", "--dry-run"]
    commands = told("deploy", "box", *login, *deploy)["deploy"]["commands"]
    assert all(f"{sshd.user}@127.0.0.1" in line for line in commands)
    assert told("down", "box", "--dry-run")["machine"]["commands"] == [f"rm {there}"]
    assert told("machines", "--dry-run")["commands"] == [state]
    assert there.exists()
    assert told("down", "box")["machine"]["state"] == "gone" and not there.exists()
    assert told("machines")["machines"] == []
    assert "known: none" in told("down", "box", code=2)


def test_a_dry_run_of_up_starts_nothing(told: Any, tmp_path: Path, folder: Path) -> None:
    up = ["--set", f"up=touch {tmp_path}/made-{{name}}", "--dry-run"]
    told_ = told("up", "box", "--provider", "command", *up)
    assert told_["machine"]["commands"] == [f"touch {tmp_path}/made-box"]
    assert not (tmp_path / "made-box").exists() and not folder.exists()
    pod = ["--gpu", "L4", "--image", "i", "--dry-run"]
    (look, create) = told("up", "box", "--provider", "runpod", *pod)["machine"]["commands"]
    assert create.endswith('$RUNPOD_API_KEY" https://rest.runpod.io/v1/pods') and "-X GET" in look


def test_wait_for_any_host(sshd: Host, told: Any) -> None:
    assert told("wait", *sshd.arguments)["machine"]["state"] == "running"


def test_a_private_key_is_no_public_one(told: Any, tmp_path: Path) -> None:
    key = make_key(tmp_path / "k")
    up = ["--provider", "command", "--set", "up=true", "--public-key"]
    assert "is no public key" in told("up", "box", *up, str(key), code=2)


def test_a_damaged_record_is_named(told: Any, folder: Path) -> None:
    folder.mkdir()
    (folder / "box.json").write_text("{")
    assert "box.json is damaged" in told("down", "box", code=2)


# -- waiting, with a clock of its own ------------------------------------------------------------


class Course:
    """A provider and a host whose answers follow a script; time passes by waiting only."""

    def __init__(self, looks: list[Any], knocks: list[Exception | None]) -> None:
        self.looks, self.knocks, self.now, self.said = looks, knocks, 0.0, [""]

    def look(self, machine: Machine) -> Machine:
        answer = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        if isinstance(answer, Exception):
            raise answer
        return Machine(
            "box", "1", answer, MachineState.RUNNING if answer else MachineState.STARTING
        )

    def knock(self, target: str) -> None:
        answer = self.knocks.pop(0) if len(self.knocks) > 1 else self.knocks[0]
        if answer is not None:
            raise answer

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def wait(self) -> Machine:
        patience = Patience(60, 5, lambda: self.now, self.sleep)
        return wait_for_machine(self, Machine("box", "1"), self.knock, patience, self.said.append)


def test_waiting_goes_on_while_things_may_become_right() -> None:
    refused, closed = AuthenticationError("no key yet"), UnreachableError("closed")
    course = Course([NoAnswerError("away"), None, "gpu:1"], [closed, refused, refused, None])
    assert course.wait().target == "gpu:1"
    heard = ["", "box: away", "box: starting, without an address yet.", "box: closed"]
    assert course.said == [*heard, "box: no key yet"] and course.now == 25


def test_waiting_ends_where_nothing_will_become_right() -> None:
    with pytest.raises(HostKeyError):
        Course(["gpu:1"], [HostKeyError("unknown")]).wait()
    refused = Course(["gpu:1"], [AuthenticationError("wrong key")])
    with pytest.raises(AuthenticationError):
        refused.wait()
    assert refused.now == 15
    with pytest.raises(ProviderError, match="refuses"):
        Course([ProviderError("refuses")], [None]).wait()
    with pytest.raises(RemoteTimeoutError, match="not ready in 1 minutes.*closed.*may cost"):
        Course(["gpu:1"], [UnreachableError("closed")]).wait()


def test_a_machine_that_was_taken_back() -> None:
    class Gone(Course):
        def look(self, machine: Machine) -> Machine:
            return Machine("box", "1", None, MachineState.GONE)

    with pytest.raises(ProviderError, match="is gone: it was ended, or its provider took it back"):
        Gone([None], [None]).wait()
