"""A stand-in for a host: scripts run here, in a home of their own, with a trainer in shell."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from voicehub_remote.description import Description
from voicehub_remote.errors import CommandError
from voicehub_remote.places import Places
from voicehub_remote.session import RunState, Session
from voicehub_remote.ssh import Done

from voicehub.cli.launch_files import JobRequest
from voicehub.cli.launch_plan import LaunchPlan

# The trainer is a file of the project. It is known by its command, as the real one is.
INTERPRETER = """#!/bin/sh
[ "$1" != -I ] || exec PYTHON "$@"
exec sh ./trainer.sh "$@"
"""


class LocalHost:
    """What ``Remote`` is to a session, without ssh."""

    def __init__(self, home: Path, root: str = "voice hub/it's") -> None:
        self.home, self.places = home, Places(root)
        self.dry_run = False
        self.path = home / root
        self.environment = {
            **{name: value for name, value in os.environ.items() if name in ("PATH", "LANG")},
            "HOME": str(home),
            "TMUX_TMPDIR": str(home),
        }
        (self.path / "env/bin").mkdir(parents=True)
        (self.path / "project").mkdir()
        python = self.path / "env/bin/python"
        python.write_text(INTERPRETER.replace("PYTHON", sys.executable))
        python.chmod(0o755)

    def trainer(self, script: str) -> None:
        """What runs in place of ``voicehub train``."""
        (self.path / "project/trainer.sh").write_text(script)

    def session(self, run: str) -> Session:
        return Session(self, self.places, run)  # type: ignore[arg-type]

    def run(
        self, script: str, *, what: str, stdin: str | None = None, check: bool = True, **_: Any
    ) -> Done:
        ended = subprocess.run(
            ["sh", "-c", script],
            input=stdin or "",
            capture_output=True,
            text=True,
            cwd=self.home,
            env=self.environment,
            timeout=30,
            check=False,
        )
        if check and ended.returncode:
            raise CommandError(what, code=ended.returncode, output=ended.stderr)
        return Done(ended.returncode, ended.stdout, ended.stderr)

    def description(self, run: str, **more: Any) -> Description:
        """Of a run of this name; ``environment`` and ``setup`` as in a ``JobRequest``."""
        job = {name: more.pop(name) for name in ("environment", "setup") if name in more}
        plan = LaunchPlan(("train", "demo/tiny", f"training.output_dir=runs/{run}"))
        return Description(plan, JobRequest(run, **job), f"runs/{run}", **more)

    def processes(self) -> list[int]:
        """Everything that was started here and lives."""
        mine = f"HOME={self.home}".encode()
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mine in (path / "environ").read_bytes().split(b"\0"):
                    found.append(int(path.name))
        return found

    def power_off(self) -> None:
        """Kill all of it at once, as a restart of the host would."""
        while left := self.processes():
            for process in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)

    def log(self, run: str) -> str:
        return (self.path / "runs" / run / "log").read_text()


def until(found: Callable[[], Any], seconds: float = 20.0) -> Any:
    """Ask until the answer is true, and return it."""
    end = time.monotonic() + seconds
    while not (answer := found()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
    return answer


def ended(session: Session) -> RunState:
    """Wait for the end of everything."""
    return until(lambda: (state := session.state()).state in ("ended", "lost") and state)
