"""What the verbs say and return, with a trainer in shell."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from local_host import until
from loopback_sshd import Host
from remote_runs import Verbs
from voicehub_remote.providers import machines
from voicehub_remote.providers.contract import Machine, MachineState
from voicehub_remote.session import Session

pytestmark = pytest.mark.skipif(
    find_spec("voicehub_example") is None, reason="needs example/tiny of voicehub-example"
)

RUN = "example-tiny"
MADE = "runs/example-tiny/final-model/weights"


@pytest.fixture
def verbs(sshd: Host, tmp_path: Path) -> Verbs:
    return Verbs(sshd, f"verbs of {tmp_path.name}", tmp_path)


def test_train_ends_as_the_training_did(verbs: Verbs) -> None:
    verbs.trainer("echo seen live; exit 5")
    assert verbs("train", "example/tiny", "--on-end", "echo bye") == 5
    assert "seen live\n" in verbs.text
    assert "failed with exit code 5; --on-end is still to end" in verbs.text
    until(lambda: verbs.told("status")["runs"][0]["state"] == "ended")
    verbs.trainer("exit 6")
    result = verbs.told("train", "example/tiny")
    assert (result["ok"], result["run"]["code"], result["run"]["attempt"]) == (False, 6, 2)
    assert verbs("attach") == 6
    assert "attempt 2" in verbs.text and "seen live" not in verbs.text
    assert verbs("status") == 0
    assert "failed with exit code 6 (attempt 2" in verbs.text


def test_train_fetches_what_was_made_and_goes_on_as_before(verbs: Verbs) -> None:
    verbs.trainer(f"mkdir -p {MADE[:-8]}; echo $*>>{MADE}; exit 4")
    assert verbs("train", "example/tiny", "training.max_steps=7", "--fetch") == 4
    words = "-m voicehub train example/tiny training.max_steps=7 resume=auto\n"
    assert (verbs.project / MADE).read_text() == words
    assert "seconds" not in (verbs.project / "runs/example-tiny/remote/log").read_text()
    assert verbs("train", "--fetch") == 4  # nothing is named: the same again
    assert (verbs.project / MADE).read_text() == words * 2


def test_a_training_that_made_nothing_ends_as_it_did_and_its_log_comes(verbs: Verbs) -> None:
    verbs.trainer("echo no data; exit 5")
    assert verbs("train", "example/tiny", "--fetch") == 5
    assert "is not there" in verbs.text
    assert "no data" in (verbs.project / "runs/example-tiny/remote/log").read_text()


def test_ctrl_c_leaves_the_run_and_stop_ends_it(verbs: Verbs) -> None:
    verbs.trainer("trap 'echo saved; exit 1' INT; echo ready; while :; do sleep 0.05; done")
    command = [sys.executable, "-m", "voicehub", *verbs.words("train", "example/tiny")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as client:
        assert client.stdout is not None and client.stderr is not None
        assert any(line == b"ready\n" for line in client.stdout)
        client.send_signal(signal.SIGINT)
        told = client.stderr.read().decode()
    assert client.returncode == 1
    assert "the run goes on" in told and f"--name {RUN}" in told
    until(lambda: not watchers(verbs))
    assert "running" in verbs.told("status")["runs"][0]["state"]
    assert verbs("stop") == 0
    assert "saved\n" in verbs.text and "failed with exit code 1" in verbs.text
    assert verbs("stop") == 0
    assert "saved\n" not in verbs.text


def watchers(verbs: Verbs) -> list[str]:
    """Commands on the host that follow a log."""
    found = []
    for process in verbs.host.processes():
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{process}/cmdline").read_text()
            found += [words] if verbs.root in words and "position=" in words else []
    return found


def test_ctrl_c_while_a_run_is_being_started_says_that_it_may_run(
    verbs: Verbs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Session, "start", interrupted)
    assert verbs("train", "example/tiny") == 1
    assert "it may run there" in verbs.text and f"--name {RUN}" in verbs.text


def test_stop_cancels_the_command_for_the_end(verbs: Verbs) -> None:
    verbs.trainer("exit 0")
    end = ("--on-end", "touch ../it-ran", "--on-end-delay", "5")
    assert verbs("train", "example/tiny", *end) == 0
    assert verbs.told("stop")["run"]["on_end"] == "cancelled"
    assert not (verbs.folder / "it-ran").exists()


def test_stop_ends_the_machine_as_well(verbs: Verbs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICEHUB_MACHINES", str(verbs.project / "machines"))
    address, gone = verbs.host.arguments[0], verbs.project / "gone"
    machine = Machine("box", "box", address, MachineState.RUNNING)
    settings = {"up": "true", "stop": f"touch '{gone}'"}
    machines.save(machines.Record(machine, "command", settings))
    verbs.trainer("trap 'exit 1' INT; while :; do sleep 0.05; done")
    assert verbs("train", "example/tiny", "--detach") == 0
    assert verbs("stop", "--machine") == 2  # HOST is no machine that was started from here
    words = verbs.words("stop", "--machine")
    verbs.words = lambda *_: ["remote", "stop", "box", *words[3:]]  # type: ignore[method-assign]
    assert verbs("stop") == 0
    assert "exit code 1" in verbs.text and "box: stopped" in verbs.text
    assert gone.exists()


def test_attach_with_a_terminal_brings_ctrl_c_to_the_run(verbs: Verbs) -> None:
    verbs.trainer("trap 'echo saved; exit 1' INT; while :; do echo ready; sleep 0.1; done")
    assert verbs("train", "example/tiny", "--detach") == 0
    assert "voicehub remote attach" in verbs.text
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "voicehub", *verbs.words("attach", "--terminal")]
    environment = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    ):
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while b"ready" not in shown:
                shown += os.read(ours, 4096)
            os.write(ours, b"\x03")
            while piece := os.read(ours, 4096):
                shown += piece
    os.close(ours)
    assert b"failed with exit code 1" in shown
    assert "saved" in (verbs.folder / "runs" / RUN / "log").read_text()


def test_attach_to_a_long_log_begins_near_its_end(verbs: Verbs) -> None:
    verbs.trainer("i=0; while [ $i -lt 50 ]; do i=$((i + 1)); echo line $i; done")
    assert verbs("train", "example/tiny") == 0
    assert verbs("attach", "-n", "5") == 0
    assert "line 50\n" in verbs.text and "line 40\n" not in verbs.text
    assert "earlier lines" in verbs.text
    assert verbs("attach") == 0
    assert "line 1\n" in verbs.text and "earlier lines" not in verbs.text


def test_a_run_that_is_not_there(verbs: Verbs) -> None:
    assert verbs("attach") == 1
    assert "has no run below" in verbs.text
    assert (verbs("status"), verbs.text) == (0, f"no run below {verbs.root}\n")
    assert verbs("train", "example/tiny") == 1
    assert "voicehub remote deploy" in verbs.text
    verbs.trainer("exit 0")
    assert verbs("train", "example/tiny") == 0
    assert verbs("attach", "--name", "other") == 1
    assert f"no run other below {verbs.root}, only {RUN}" in verbs.text
    assert verbs("fetch") == 1
    assert "is not there" in verbs.text
    assert verbs("checkpoint") == 1
    assert "no whole checkpoint" in verbs.text


def test_wrong_use_is_told_before_the_host_is_asked(verbs: Verbs) -> None:
    dead = ["remote", "train", "no-such-host.invalid", "--project", str(verbs.project)]
    for words, said in {
        ("example/tiny", "--fetch", "--on-end", "poweroff"): "--on-end-delay",
        ("example/tiny", "--env", "NOT_SET_HERE"): "not set: NOT_SET_HERE",
        ("example/nothing",): "example/nothing",
        ("--nproc", "2"): "name its PRESET",
        ("--dry-run",): "name its PRESET",
    }.items():
        verbs.words = lambda verb, *rest: [*dead, *rest]  # type: ignore[method-assign]
        assert verbs("train", *words) == 2
        assert said in verbs.text


def test_lines_of_a_dry_run_do_what_they_say(verbs: Verbs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMO_VALUE", "it's $a\nsecret")
    verbs.trainer('printf %s "$DEMO_VALUE" >got; exit 3')
    wanted = ("example/tiny", "--env", "DEMO_VALUE", "--detach")
    dry = verbs.told("train", *wanted, "--dry-run")["commands"]
    assert "secret" not in str(dry)
    assert not (verbs.folder / "runs").exists()
    for line in dry:
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert verbs("attach") == 3
    assert (verbs.folder / "project/got").read_text() == "it's $a\nsecret"


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("attach", []), ("attach", ["--terminal"]), ("logs", ["-f"]), ("status", []),
        ("checkpoint", ["--fetch"]), ("fetch", []), ("stop", []),
        ("train", ["example/tiny", "--fetch"]),
    ],
)  # fmt: skip
def test_a_dry_run_contacts_nobody(verbs: Verbs, verb: str, words: list[str]) -> None:
    verbs.words = lambda verb, *rest: ["remote", verb, "no-such-host.invalid", *rest]  # type: ignore[method-assign]
    assert verbs(verb, *words, "--dry-run") == 0
    lines = verbs.text.splitlines()
    assert lines and all("no-such-host.invalid" in line for line in lines)
    if verb == "attach" and not words:
        assert any("lines=1000" in line for line in lines)
    if words != ["--terminal"]:
        assert verbs.told(verb, *words, "--dry-run")["commands"] == lines
