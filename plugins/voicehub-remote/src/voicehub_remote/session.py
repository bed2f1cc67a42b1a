"""A run in a tmux of its own on the host: start it, ask after it, follow its log, end it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

from voicehub_remote.description import Description
from voicehub_remote.errors import CommandError, RemoteError

if TYPE_CHECKING:
    from voicehub_remote.places import Places
    from voicehub_remote.ssh import Remote

_TAKEN, _NOT_DEPLOYED = 3, 4  # exit codes of start.sh
GOING = ("running", "orphan")


class RunTakenError(RemoteError):
    """A run of that name is going on already."""


class NoRunError(RemoteError):
    """The host has no run of that name."""


@dataclass(frozen=True)
class RunState:
    """How a run stands.

    Attributes:
        run: its name.
        state: ``none``, ``running``, ``ending`` (the trainer has ended, ``--on-end`` has not),
            ``ended``, ``orphan`` (the trainer runs, and nobody records its end) or ``lost`` (it
            does not run, and nobody wrote down how it ended: the host was restarted).
        code: exit code of the trainer; None while there is none.
        attempt: how often it was started, from 1 on.
        started, ended: UTC, ISO 8601; empty where it has not.
        pid: of the trainer on the host.
        on_end: exit code of ``--on-end``, or ``cancelled``; empty where it has not run.
        preset: what it trains.
        output: its ``training.output_dir``, relative to the project or absolute.
        log_bytes: size of the log.
        begin: byte of the log where this attempt begins, or the lines of it that were asked for.
        lines: number of lines that this attempt has logged; 0 where nobody asked.
    """

    run: str
    state: str
    code: int | None = None
    attempt: int = 0
    started: str = ""
    ended: str = ""
    pid: int | None = None
    on_end: str = ""
    preset: str = ""
    output: str = ""
    log_bytes: int = 0
    begin: int = 0
    lines: int = 0

    @property
    def goes_on(self) -> bool:
        """Whether the trainer runs."""
        return self.state in GOING

    @classmethod
    def parse(cls, text: str) -> RunState:
        """From lines ``NAME=VALUE`` as the host writes them."""
        found = dict(line.partition("=")[::2] for line in text.splitlines() if "=" in line)

        def number(name: str) -> int | None:
            value = found.get(name, "")
            return int(value) if value.isdigit() else None

        return cls(
            run=found.get("run", ""),
            state=found.get("state", "none"),
            code=number("code"),
            attempt=number("attempt") or 0,
            started=found.get("started", ""),
            ended=found.get("ended", ""),
            pid=number("pid"),
            on_end=found.get("on_end", ""),
            preset=found.get("preset", ""),
            output=found.get("output", ""),
            log_bytes=number("log_bytes") or 0,
            begin=number("begin") or 0,
            lines=number("lines") or 0,
        )

    def words(self) -> str:
        """For a person."""
        since = f"attempt {self.attempt}, started {self.started}"
        if self.state == "none":
            return "never started"
        if self.state == "running":
            return f"running ({since})"
        if self.state == "orphan":
            return (
                f"running as process {self.pid}, but what records its end is gone ({since}): its "
                "exit code will not be known"
            )
        if self.state == "lost":
            return (
                f"neither running nor ended ({since}): the host was restarted, or all of the run "
                "was killed"
            )
        outcome = "done" if self.code == 0 else f"failed with exit code {self.code}"
        if self.state == "ending":
            return f"{outcome}; --on-end is still to end"
        after = f"; --on-end: {self._on_end()}" if self.on_end else ""
        return f"{outcome} ({since}, ended {self.ended}){after}"

    def _on_end(self) -> str:
        if self.on_end in ("0", "cancelled"):
            return "done" if self.on_end == "0" else "cancelled"
        return f"FAILED with exit code {self.on_end}"


class Session:
    """One run on one host."""

    def __init__(self, remote: Remote, places: Places, run: str) -> None:
        places.run(run)  # refuses what is no name
        self.remote, self.places, self.run = remote, places, run

    def start(self, description: Description, secrets: Mapping[str, str]) -> RunState:
        """Start an attempt.

        Args:
            secrets: values of variables. They go to the host by standard input.

        Raises:
            RunTakenError: it runs, or its ``--on-end`` does.
            RemoteError: nothing is deployed, tmux does not work there, or the disk is full.
        """
        script = on_host(
            "start",
            root=self.places.root,
            run=self.run,
            program=attempt_program(description, self.run),
            description=description.to_json(),
        )
        try:
            done = self.remote.run(
                script,
                stdin=assignments(secrets) if secrets else None,
                stdin_shown=assignments_shown(secrets) if secrets else None,
                what=f"start the run {self.run}",
            )
        except CommandError as error:
            if error.code == _TAKEN:
                raise RunTakenError(self._taken(RunState.parse(error.output))) from None
            if error.code == _NOT_DEPLOYED:
                raise RemoteError(
                    f"{self.places.root} on the host has no project or no environment yet. Send "
                    "them with `voicehub remote deploy`."
                ) from None
            raise
        return RunState.parse(done.out)

    def _taken(self, state: RunState) -> str:
        if state.state == "ending":
            return (
                f"The run {self.run} has ended, and its command for the end has not run yet. Wait, "
                "or cancel it with `voicehub remote stop`."
            )
        return (
            f"A run {self.run} is {state.words()}. Follow it with `voicehub remote attach`, end it "
            "with `voicehub remote stop`, or choose another --name."
        )

    def state(self, lines: int | None = None) -> RunState:
        """How it stands; ``lines`` asks where the last so many lines of the attempt begin."""
        values = {} if lines is None else {"lines": str(lines)}
        script = on_host("state", root=self.places.root, run=self.run, **values)
        return RunState.parse(self.remote.run(script, what=f"ask after the run {self.run}").out)

    def description(self) -> Description:
        """What the last attempt was told to run.

        Raises:
            NoRunError: there was none.
            UsageError: another version wrote it.
        """
        path = shlex.quote(f"{self.places.run(self.run)}/description.json")
        done = self.remote.run(
            f"cat {path}", what=f"read the description of the run {self.run}", check=False
        )
        if done.code:
            raise NoRunError(f"The host has no run {self.run}. See `voicehub remote status`.")
        return Description.from_json(done.out)

    def stop(self, *, now: bool) -> RunState:
        """Tell it to end, and do not wait; the state is that before.

        A run whose trainer has ended loses its command for the end.

        Args:
            now: kill it instead of letting it save a checkpoint.
        """
        script = on_host("stop", root=self.places.root, run=self.run, now="yes" if now else "")
        return RunState.parse(self.remote.run(script, what=f"stop the run {self.run}").out)


def all_states(remote: Remote, places: Places) -> list[RunState]:
    """Every run below the root, the one that was started last at the end."""
    script = on_host("state", root=places.root, run="")
    out = remote.run(script, what="list the runs").out
    states = [RunState.parse(part) for part in out.split("\n\n") if part.strip()]
    return sorted(states, key=lambda state: (state.started, state.run))


def on_host(name: str, **values: str) -> str:
    """A script of ``on_host`` with its variables set, and what all of them share in front."""
    return f"{_set(values)}\n{_script('common')}{_script(name)}"


def attempt_program(description: Description, run: str) -> str:
    """``run.sh``: what tmux runs. Names of variables stand in it, never values."""
    job = description.job
    asked = [f': "${{{name}:?is not set}}"' for name in job.environment]
    # Each line is read when its turn comes: a broken one fails the attempt, and is in the log.
    prepare = [*asked, *(f"eval {shlex.quote(line)}" for line in job.setup)] or [":"]
    command = shlex.join(description.command())
    values = {
        "run": run,
        "preset": description.plan.preset,
        "output": description.output,
        "shown": shlex.join(["voicehub", *description.plan.words]),
        "on_end": description.on_end or "",
        "on_end_delay": str(description.on_end_delay * 60),
    }
    lines = "\n".join(f"    {line}" for line in prepare)
    return (
        "# Written by voicehub-remote, anew for every attempt.\n"
        f"{_set(values)}\nprepare() {{\n{lines}\n}}\n"
        f'train() {{\n    exec "$root/env/bin/python" {command}\n}}\n{_script("attempt")}'
    )


def assignments(secrets: Mapping[str, str]) -> str:
    """Shell text that sets and exports variables, for a shell's standard input."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in secrets.items())


def assignments_shown(names: Iterable[str]) -> str:
    """Shell that writes ``assignments`` with the values that it finds itself."""
    program = (
        "import os, shlex, sys; "
        '[print(f"export {name}={shlex.quote(os.environ[name])}") for name in sys.argv[1:]]'
    )
    return shlex.join(["python3", "-c", program, *names])


def _set(values: Mapping[str, str]) -> str:
    return "\n".join(f"{name}={shlex.quote(value)}" for name, value in values.items())


def _script(name: str) -> str:
    """Its lines without comments: they would be in every command that a dry run prints."""
    path = resources.files("voicehub_remote.on_host") / f"{name}.sh"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if line.strip() and not line.lstrip().startswith("#"))
