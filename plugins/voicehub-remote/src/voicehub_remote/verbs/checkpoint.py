"""``voicehub remote checkpoint``: the newest checkpoint of a run that is whole."""

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


def checkpoint(
    host: HostArgument,
    name: NameOption = None,
    fetch: Annotated[bool, typer.Option("--fetch", help="And fetch it.")] = False,
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
    """Find the newest checkpoint whose files have the sizes and digests that it says.

    Damaged ones that are newer are named; without a whole one the exit code is 1.
    """
    from voicehub_remote.artifacts import fetch_folder
    from voicehub_remote.checkpoints import newest_checkpoint
    from voicehub_remote.places import Places
    from voicehub_remote.runs import end, output_here, output_there, session_of

    places = Places.of(project, root)
    with open_remote(
        host, identity, ssh_option, accept_new_host_key, connect_timeout,
        folder=places.root, dry_run=dry_run, json_mode=json_,
    ) as remote:  # fmt: skip
        _, state = session_of(remote, places, name)
        folder = output_there(places, state.output)
        newest = newest_checkpoint(remote, places, folder)
        for item in newest.damaged:
            say(f"damaged: {item['checkpoint']}: {item['reason']}", json_mode=json_)
        result = newest.as_dict()
        human = newest.words()
        if fetch and newest.name is not None:
            there, here = (
                f"{folder}/{newest.name}",
                (to or output_here(project, state)) / newest.name,
            )
            fetched = fetch_folder(remote, places, there, here, patterns=["*"], force=force)
            result["fetched"] = fetched.as_dict()
            human = f"{human}\n{fetched.words()}"
    end(remote, result, json_mode=json_, human=human, ok=newest.name is not None)
