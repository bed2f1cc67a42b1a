"""Which run a verb is about, where its files lie, and how a verb that saw its end ends."""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from voicehub.cli.output import finish, say
from voicehub_remote.errors import RemoteError
from voicehub_remote.session import NoRunError, RunState, RunTakenError, Session, all_states

if TYPE_CHECKING:
    from voicehub_remote.description import Description
    from voicehub_remote.places import Places
    from voicehub_remote.ssh import Remote

#: Stands for the run in a dry run that was given no name.
UNNAMED = "RUN"


class RunLostError(RemoteError):
    """A run is neither there nor has it ended."""


def choose_run(remote: Remote, places: Places, name: str | None) -> RunState:
    """The run of that name, or the one that was started last.

    Raises:
        NoRunError: there is none; lists those that there are.
    """
    states = all_states(remote, places)
    if remote.dry_run:
        return RunState(name or UNNAMED, "none")
    for state in reversed(states):
        if name in (None, state.run):
            return state
    if not states:
        raise NoRunError(
            f"{remote.target} has no run below {places.root} yet. Start one with `voicehub remote "
            "train`; --root names another folder."
        )
    there = ", ".join(state.run for state in states)
    raise NoRunError(f"{remote.target} has no run {name} below {places.root}, only {there}.")


def check_free(states: Sequence[RunState], description: Description) -> None:
    """Whether a run may be started or continued beside those that are there.

    Raises:
        RunTakenError: the name belongs to a run of something else, or a run that goes on writes
            into the same directory.
    """
    name, preset, output = description.job.name, description.plan.preset, description.output
    for state in states:
        same = (state.preset, state.output) == (preset, output)
        if state.run == name and not same:
            raise RunTakenError(
                f"The name {name} belongs to a run of {state.preset} in {state.output} there; this "
                f"is {preset} in {output}. Choose another --name."
            )
        if state.run != name and state.goes_on and state.output == output:
            raise RunTakenError(
                f"The run {state.run} goes on there and writes into {output}, where this one would "
                "write as well. Choose another training.output_dir, or end it with `voicehub "
                f"remote stop --name {state.run}`."
            )


def output_there(places: Places, output: str) -> str:
    """``training.output_dir`` as a path on the host."""
    return posixpath.normpath(posixpath.join(places.project, output))


def output_here(project: Path, state: RunState) -> Path:
    """Where what is fetched of a run goes: the same place in the project here."""
    if posixpath.isabs(state.output) or ".." in state.output.split("/"):
        return project / "runs" / state.run  # its own place is none of this project
    return project / (state.output or f"runs/{state.run}")


def as_dict(state: RunState) -> dict[str, Any]:
    """For JSON."""
    values = dataclasses.asdict(state)
    for name in ("begin", "lines"):
        del values[name]
    return values


def end(
    remote: Remote, result: Mapping[str, Any], *, json_mode: bool, human: str, ok: bool = True
) -> None:
    """End a verb as ``finish`` does; a dry run ends with the commands that it has printed.

    Raises:
        typer.Exit: with code 1 when ``ok`` is false.
    """
    if remote.dry_run:
        finish({"commands": remote.commands}, json_mode=json_mode)
    else:
        finish(result, json_mode=json_mode, human=human, ok=ok)


def end_as_the_run(
    session: Session, state: RunState, *, json_mode: bool, extra: Mapping[str, Any] | None = None
) -> None:
    """End a verb that has followed a run to its end: the trainer's exit code becomes ours.

    Raises:
        RunLostError: nobody knows how it ended.
        SystemExit: the trainer's exit code, where that is not 0.
    """
    if state.code is None and not session.remote.dry_run:
        raise RunLostError(
            f"The run {state.run} is {state.words()}. Start it again with `voicehub remote train`: "
            "it goes on from its newest whole checkpoint."
        )
    human = f"{state.run}: {state.words()}"
    result = {"run": as_dict(state), **(extra or {})}
    try:
        end(session.remote, result, json_mode=json_mode, human=human, ok=not state.code)
    except typer.Exit:
        raise SystemExit(state.code) from None


def session_of(remote: Remote, places: Places, name: str | None) -> tuple[Session, RunState]:
    """``choose_run``, with what acts on it; says which one it is where nobody named it."""
    state = choose_run(remote, places, name)
    if name is None and not remote.dry_run:
        say(f"run {state.run}: {state.words()}", json_mode=True)
    return Session(remote, places, state.run), state
