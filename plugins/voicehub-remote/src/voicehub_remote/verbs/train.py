"""``voicehub remote train``: start a run on the host, or have one go on, and follow it."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from voicehub.cli.options import JsonOption
from voicehub.cli.output import UsageError, say
from voicehub_remote.options import (
    ConnectTimeoutOption,
    DryRunOption,
    HostArgument,
    IdentityOption,
    NewHostKeyOption,
    ProjectOption,
    RootOption,
    SshOption,
    open_remote,
)

if TYPE_CHECKING:
    from voicehub_remote.description import Description
    from voicehub_remote.places import Places
    from voicehub_remote.session import RunState, Session
    from voicehub_remote.ssh import Remote

_END = "When it ends"


def train(
    host: HostArgument,
    preset: Annotated[
        str | None,
        typer.Argument(
            metavar="[PRESET]",
            help="As `voicehub train` takes it.  [what the run was started with]",
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Settings in Hydra's syntax.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Of the run.  [that of the preset]")] = None,
    nproc: Annotated[int, typer.Option(min=1, help="Processes, one a GPU.")] = 1,
    max_restarts: Annotated[
        int, typer.Option(min=0, help="Start all processes again so often after a failure.")
    ] = 0,
    env: Annotated[
        list[str] | None,
        typer.Option(help="Name of a variable that the run needs; its value is taken from here."),
    ] = None,
    setup: Annotated[
        list[str] | None, typer.Option(help="A shell line that runs first, in the project there.")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Start it, and do not follow.")] = False,
    fetch: Annotated[
        bool, typer.Option("--fetch", help="Fetch what it made.", rich_help_panel=_END)
    ] = False,
    on_end: Annotated[
        str | None,
        typer.Option(
            help="A shell command for the host, after success and after failure, such as one that "
            "stops the machine.",
            rich_help_panel=_END,
        ),
    ] = None,
    on_end_delay: Annotated[
        int, typer.Option(min=0, help="Minutes before --on-end.", rich_help_panel=_END)
    ] = 0,
    root: RootOption = None,
    project: ProjectOption = Path(),
    identity: IdentityOption = None,
    ssh_option: SshOption = None,
    accept_new_host_key: NewHostKeyOption = False,
    connect_timeout: ConnectTimeoutOption = 15,
    dry_run: DryRunOption = False,
    json_: JsonOption = False,
) -> None:
    """Train on HOST, in a tmux that outlives the connection, and follow until the end.

    A run of the same name goes on from its newest checkpoint. Ctrl-C stops following, not the run.
    The exit code is that of the training.
    """
    from voicehub.cli.launch_plan import LaunchPlan
    from voicehub_remote.description import describe
    from voicehub_remote.follow import come_back
    from voicehub_remote.places import Places
    from voicehub_remote.runs import as_dict, end
    from voicehub_remote.session import Session

    if fetch and (detach or (on_end and not on_end_delay)):
        raise UsageError(
            "--fetch needs the host after the end: leave out --detach, and give --on-end-delay "
            "MINUTES with --on-end, or the machine may be gone before the files are here."
        )
    places = Places.of(project, root)
    with open_remote(
        host, identity, ssh_option, accept_new_host_key, connect_timeout,
        folder=places.root, dry_run=dry_run, json_mode=json_,
    ) as remote:  # fmt: skip
        if preset is None:
            if env or setup or nproc > 1 or max_restarts:
                raise UsageError("To change how a run is started, name its PRESET as well.")
            description = _as_before(remote, places, name, on_end, on_end_delay)
        else:
            plan = LaunchPlan(
                ("train", preset, *(overrides or ())), nproc, max_restarts=max_restarts
            )
            description = describe(
                plan, name=name, environment=env or (), setup=setup or (),
                on_end=on_end, on_end_delay=on_end_delay, project=project,
            )  # fmt: skip
        session = Session(remote, places, description.job.name)
        state = _start(session, description, json_mode=json_)
        if detach:
            end(remote, {"run": as_dict(state)}, json_mode=json_, human=come_back(session))
            return
        follow_to_the_end(session, state, project if fetch else None, json_mode=json_)


def _as_before(
    remote: Remote, places: Places, name: str | None, on_end: str | None, on_end_delay: int
) -> Description:
    """What the run was started with; a new command for the end replaces that of before."""
    if remote.dry_run:
        raise UsageError(
            "A dry run does not ask the host what a run was started with: name its PRESET."
        )
    from voicehub_remote.runs import session_of

    session, _ = session_of(remote, places, name)
    description = session.description()
    if on_end is None:
        return description
    return replace(description, on_end=on_end, on_end_delay=on_end_delay)


def _start(session: Session, description: Description, *, json_mode: bool) -> RunState:
    from voicehub_remote.follow import Detached, come_back
    from voicehub_remote.runs import check_free
    from voicehub_remote.session import all_states

    secrets = description.secrets(os.environ)
    states = all_states(session.remote, session.places)
    check_free(states, description)
    earlier = next((state for state in states if state.run == session.run), None)
    if earlier is not None and not earlier.goes_on:
        say(f"{session.run}: {earlier.words()}; starting it again", json_mode=True)
    try:
        return session.start(description, secrets)
    except KeyboardInterrupt:
        raise Detached(
            f"interrupted while it was being started: it may run there. {come_back(session)}"
        ) from None


def follow_to_the_end(
    session: Session, state: RunState, fetch_to: Path | None, *, json_mode: bool
) -> None:
    """Show the log from where the attempt began, fetch what it made, and end as the trainer did."""
    from voicehub_remote.artifacts import fetch_run
    from voicehub_remote.errors import RemoteError
    from voicehub_remote.follow import Follower, to_stream
    from voicehub_remote.runs import end_as_the_run, output_here

    write = to_stream(json_mode)
    tell = partial(say, json_mode=True)
    state = Follower(session, state.begin, write=write, tell=tell).run()
    extra: dict[str, Any] = {}
    if fetch_to is not None:
        try:
            fetched = fetch_run(session, state, output_here(fetch_to, state))
        except RemoteError as error:
            if not state.code:
                raise
            # Of two failures that of the training counts: its exit code becomes ours.
            say(f"Error: {error}", json_mode=True)
            extra["fetched"] = None
        else:
            if not session.remote.dry_run:
                say(fetched.words(), json_mode=json_mode)
            extra["fetched"] = fetched.as_dict()
    end_as_the_run(session, state, json_mode=json_mode, extra=extra)
