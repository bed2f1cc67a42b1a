"""``voicehub remote attach``: come back to a run and follow it to its end."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from voicehub.cli.options import JsonOption
from voicehub.cli.output import UsageError, say
from voicehub_remote.options import (
    ConnectTimeoutOption,
    DryRunOption,
    HostArgument,
    IdentityOption,
    NameOption,
    NewHostKeyOption,
    ProjectOption,
    RootOption,
    SshOption,
    open_remote,
)


def attach(
    host: HostArgument,
    name: NameOption = None,
    lines: Annotated[
        int, typer.Option("-n", "--lines", min=0, help="Begin with the last so many at most.")
    ] = 1000,
    terminal: Annotated[
        bool, typer.Option("--terminal", help="Attach this terminal to the tmux there.")
    ] = False,
    root: RootOption = None,
    project: ProjectOption = Path(),
    identity: IdentityOption = None,
    ssh_option: SshOption = None,
    accept_new_host_key: NewHostKeyOption = False,
    connect_timeout: ConnectTimeoutOption = 15,
    dry_run: DryRunOption = False,
    json_: JsonOption = False,
) -> None:
    """Show what a run has logged since it was started, and follow it live.

    Ctrl-C stops following, not the run; with --terminal it reaches the run. The exit code is that
    of the training.
    """
    from voicehub_remote.follow import Follower, to_stream
    from voicehub_remote.places import Places
    from voicehub_remote.runs import as_dict, end, end_as_the_run, session_of
    from voicehub_remote.session import on_host

    if terminal and json_:
        raise UsageError("--terminal shows the run's own terminal: leave out --json.")
    places = Places.of(project, root)
    with open_remote(
        host, identity, ssh_option, accept_new_host_key, connect_timeout,
        folder=places.root, dry_run=dry_run, json_mode=json_,
    ) as remote:  # fmt: skip
        session, state = session_of(remote, places, name)
        if terminal:
            script = on_host("terminal", root=places.root, run=session.run)
            remote.terminal(script, what=f"attach to the run {session.run}")
            state = session.state()
            human = f"{session.run}: {state.words()}"
            end(remote, {"run": as_dict(state)}, json_mode=json_, human=human)
            return
        asked = session.state(lines)
        state = state if dry_run else asked
        if state.lines > lines:
            left_out = state.lines - lines
            say(
                f"({left_out:,} earlier lines: voicehub remote logs -n {state.lines})",
                json_mode=True,
            )
        write = to_stream(json_)
        state = Follower(
            session, state.begin, write=write, tell=lambda text: say(text, json_mode=True)
        ).run()
        end_as_the_run(session, state, json_mode=json_)
