"""``voicehub remote fetch``: bring what a run has made here, with its digests compared."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from voicehub.cli.options import JsonOption
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


def fetch(
    host: HostArgument,
    name: NameOption = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Paths below the run's directory, with * and ?; remote/log is the log.  [all but "
            "checkpoints]"
        ),
    ] = None,
    to: Annotated[
        Path | None, typer.Option(help="Where to.  [the run's folder in the project here]")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite files here that differ.")
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
    """Fetch final models, report, metrics and log of a run.

    A transfer that broke off goes on where it was. SHA-256 digests of the host and of what came
    are compared. A file here that differs is not overwritten; one that has grown there is.
    """
    from voicehub_remote.artifacts import fetch_run
    from voicehub_remote.places import Places
    from voicehub_remote.runs import as_dict, end, output_here, session_of

    places = Places.of(project, root)
    with open_remote(
        host, identity, ssh_option, accept_new_host_key, connect_timeout,
        folder=places.root, dry_run=dry_run, json_mode=json_,
    ) as remote:  # fmt: skip
        session, state = session_of(remote, places, name)
        here = to or output_here(project, state)
        fetched = fetch_run(session, state, here, patterns=only or (), force=force)
    result = {"run": as_dict(state), **fetched.as_dict()}
    end(remote, result, json_mode=json_, human=fetched.words())
