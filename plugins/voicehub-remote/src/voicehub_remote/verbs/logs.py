"""``voicehub remote logs``: the last lines that a run has logged."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from voicehub.cli.options import JsonOption
from voicehub.cli.output import say
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


def logs(
    host: HostArgument,
    name: NameOption = None,
    lines: Annotated[
        int, typer.Option("-n", "--lines", min=0, help="The last so many; 0 for all.")
    ] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="And those to come.")] = False,
    root: RootOption = None,
    project: ProjectOption = Path(),
    identity: IdentityOption = None,
    ssh_option: SshOption = None,
    accept_new_host_key: NewHostKeyOption = False,
    connect_timeout: ConnectTimeoutOption = 15,
    dry_run: DryRunOption = False,
    json_: JsonOption = False,
) -> None:
    """Print the last lines of a run's log, over all attempts at it."""
    from voicehub_remote.follow import Follower, to_stream
    from voicehub_remote.places import Places
    from voicehub_remote.runs import as_dict, end, session_of
    from voicehub_remote.session import NoRunError, on_host

    places = Places.of(project, root)
    with open_remote(
        host, identity, ssh_option, accept_new_host_key, connect_timeout,
        folder=places.root, dry_run=dry_run, json_mode=json_,
    ) as remote:  # fmt: skip
        session, state = session_of(remote, places, name)
        script = on_host("logs", root=places.root, run=session.run, lines=str(lines))
        done = remote.run(script, what=f"read the log of {session.run}")
        position, _, text = done.out.partition("\n")
        if not dry_run and not position.isdigit():
            raise NoRunError(f"{remote.target}: the run {session.run} has no log.")
        if not dry_run:
            say(text.rstrip("\n"), json_mode=json_)
        if follow:
            state = Follower(
                session,
                int(position or 0),
                write=to_stream(json_),
                tell=lambda text: say(text, json_mode=True),
            ).run()
        log = {} if follow else {"lines": text.splitlines()}
        end(remote, {"run": as_dict(state), **log}, json_mode=json_, human="")
