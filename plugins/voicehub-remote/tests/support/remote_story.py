"""The whole way once over a real ssh, and what could be seen of it from outside."""

from __future__ import annotations

import contextlib
import io
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from local_host import until
from loopback_sshd import Host

from voicehub.cli.app import run

ROOT = "a place/it's here"
NAME = "story"
STEPS = 140
VARIABLE = "STORY_PASSWORD"
WORDS = (
    "example/tiny",
    f"training.max_steps={STEPS}",
    "training.save_strategy=steps",
    "training.save_steps=20",
    "training.save_total_limit=3",
    "training.eval_strategy=no",
    "training.logging_steps=1",
)


@dataclass
class Story:
    """What each part of it told."""

    host: Host
    project: Path
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    outputs: dict[str, str] = field(default_factory=dict)
    codes: dict[str, int] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)
    places_of_secret: list[str] = field(default_factory=list)
    trainer_environment: bytes = b""
    new_in_temporary: list[Path] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        """Of the run, on the host."""
        return self.host.home / ROOT / "runs" / NAME

    @property
    def output(self) -> Path:
        """What the training writes, on the host."""
        return self.host.home / ROOT / "project/runs/example-tiny"

    def words(self, verb: str, *words: str) -> list[str]:
        common = ["--project", str(self.project), "--root", ROOT]
        return ["remote", verb, *self.host.arguments, *common, *words]

    def tell(self, part: str, verb: str, *words: str) -> None:
        """Run a verb here; keep its output and its exit code."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = run(self.words(verb, *words))
            except SystemExit as error:
                code = int(error.code or 0)
        self.outputs[part] = out.getvalue() + err.getvalue()
        self.codes[part] = code

    def told(self, part: str, verb: str, *words: str) -> dict[str, Any]:
        """The same, with its last line of JSON."""
        self.tell(part, verb, *words, "--json")
        lines = [line for line in self.outputs[part].splitlines() if line.startswith("{")]
        return json.loads(lines[-1])  # type: ignore[no-any-return]

    def client(self, part: str, verb: str, *words: str) -> subprocess.Popen[bytes]:
        """Run a verb in a process of its own, with its output in a file."""
        command = [sys.executable, "-m", "voicehub", *self.words(verb, *words)]
        temporary = self.project.parent / "tmp"  # what a killed one cannot tidy up
        temporary.mkdir(exist_ok=True)
        with (self.project.parent / f"{part}.txt").open("wb") as stream:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env={**os.environ, "TMPDIR": str(temporary)},
            )

    def shown(self, part: str) -> str:
        """What such a process has printed so far."""
        return (self.project.parent / f"{part}.txt").read_text()

    def log(self) -> str:
        return (self.folder / "log").read_text() if (self.folder / "log").exists() else ""

    def signal_trainer(self, number: signal.Signals) -> None:
        os.kill(int((self.folder / "pid").read_text()), number)

    def is_at(self, step: int) -> bool:
        return f"\nstep {step}/" in self.log()

    def when_at(self, step: int) -> None:
        """Let the training go on, and hold it as soon as it has logged this step."""
        self.signal_trainer(signal.SIGCONT)
        until(lambda: self.is_at(step), 60)
        self.signal_trainer(signal.SIGSTOP)

    def look_for_secret(self) -> None:
        """In the command of every process."""
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if self.secret.encode() in (path / "cmdline").read_bytes():
                    self.places_of_secret.append((path / "cmdline").read_text())


def tell_story(host: Host, folder: Path, patch: pytest.MonkeyPatch) -> Story:
    """Deploy, train, lose the connection, attach, kill the trainer, resume."""
    project = folder / "my project"
    project.mkdir()
    (project / ".gitignore").write_text("runs/\n")
    subprocess.run(["git", "-C", str(project), "init", "-q"], check=True)
    story = Story(host, project)
    patch.setenv(VARIABLE, story.secret)
    before = set(Path(tempfile.gettempdir()).iterdir())

    story.tell("deploy", "deploy", "--python", host.python, "--cpu", "--skip-deps")
    assert story.codes["deploy"] == 0, story.outputs["deploy"]
    asked = ("--name", NAME, "--env", VARIABLE)
    story.tell("dry run", "train", *WORDS, *asked, "--dry-run")

    client = story.client("train", "train", *WORDS, *asked)
    until(lambda: story.look_for_secret() or client.poll() is not None or story.is_at(3), 60)
    story.signal_trainer(signal.SIGSTOP)
    until(lambda: "\nstep 3/" in story.shown("train"))
    _break_connection(client.pid)
    story.trainer_environment = _environment(int((story.folder / "pid").read_text()))
    story.look_for_secret()
    story.when_at(30)
    until(lambda: "\nstep 30/" in story.shown("train"), 30)
    client.kill()  # and here the lid is closed
    client.wait()

    story.when_at(45)
    attached = story.client("attach", "attach", "--name", NAME)
    until(lambda: "\nstep 45/" in story.shown("attach"), 30)
    story.look_for_secret()
    story.tell("running", "status")
    story.tell("twice", "train", *WORDS, *asked)
    story.when_at(60)
    story.tell("checkpoint", "checkpoint")
    story.signal_trainer(signal.SIGKILL)
    story.codes["attach"] = attached.wait(timeout=30)
    story.logs["first"] = story.log()
    story.tell("killed", "status")

    ended = ("--on-end", "echo bye; touch ../it-ended")
    story.tell("resume", "train", *WORDS, *asked, *ended)
    story.logs["second"] = story.log()[len(story.logs["first"]) :]
    until(lambda: (story.folder / "on-end").exists())
    story.new_in_temporary = sorted(set(Path(tempfile.gettempdir()).iterdir()) - before)
    return story


def _environment(process: int) -> bytes:
    with contextlib.suppress(PermissionError):
        return Path(f"/proc/{process}/environ").read_bytes()
    return b""


def _break_connection(client: int) -> None:
    """Kill every ssh that a process has started."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (path / "stat").read_text().rpartition(")")[2].split()
            if int(words[1]) == client and (path / "comm").read_text() == "ssh\n":
                found.append(int(path.name))
    assert found, "the client has no connection"
    for process in found:
        with contextlib.suppress(ProcessLookupError):  # one goes with the other
            os.kill(process, signal.SIGKILL)
