"""``voicehub remote deploy``: bring the project, its data and an environment to the host."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from voicehub.cli.options import JsonOption
from voicehub.cli.output import UsageError, finish
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

_FILES = "Files"
_ENVIRONMENT = "Environment"


def deploy(
    host: HostArgument,
    project: ProjectOption = Path(),
    root: RootOption = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH[=REMOTE]", help="Data that git does not see.", rich_help_panel=_FILES
        ),
    ] = None,
    checksum: Annotated[
        bool,
        typer.Option("--checksum", help="Compare contents of data, too.", rich_help_panel=_FILES),
    ] = False,
    allow_file: Annotated[
        list[str] | None,
        typer.Option(help="A file that looks like a secret and is none.", rich_help_panel=_FILES),
    ] = None,
    python: Annotated[
        str | None,
        typer.Option(help="Interpreter there that has torch.", rich_help_panel=_ENVIRONMENT),
    ] = None,
    requirements: Annotated[
        Path | None,
        typer.Option(
            help="What the project needs, for pip.",
            show_default="requirements.txt of the project",
            rich_help_panel=_ENVIRONMENT,
        ),
    ] = None,
    cpu: Annotated[
        bool, typer.Option("--cpu", help="Do without CUDA.", rich_help_panel=_ENVIRONMENT)
    ] = False,
    skip_deps: Annotated[
        bool,
        typer.Option(
            "--skip-deps", help="Install without dependencies.", rich_help_panel=_ENVIRONMENT
        ),
    ] = False,
    skip_setup: Annotated[
        bool,
        typer.Option(
            "--skip-setup", help="Leave the environment alone.", rich_help_panel=_ENVIRONMENT
        ),
    ] = False,
    identity: IdentityOption = None,
    ssh_option: SshOption = None,
    accept_new_host_key: NewHostKeyOption = False,
    connect_timeout: ConnectTimeoutOption = 15,
    dry_run: DryRunOption = False,
    json_: JsonOption = False,
) -> None:
    """Bring what a run needs to HOST: the project as git sees it, named data, an environment.

    Done again, it sends what changed.
    """
    from voicehub_remote.environment_request import (
        EnvironmentRequest,
        find_requirements,
        place_of,
    )
    from voicehub_remote.places import Places
    from voicehub_remote.project import DataItem, Upload

    if skip_setup and (python or requirements or cpu or skip_deps):
        raise UsageError("--skip-setup leaves the environment alone: leave out its options.")
    items = tuple(DataItem.parse(text, project) for text in data or ())
    upload = Upload(project, items, tuple(allow_file or ()), checksum)
    request = None
    if not skip_setup:
        found = find_requirements(project, requirements)
        request = EnvironmentRequest(python, found, place_of(project, found), cpu, not skip_deps)
    places = Places.of(project, root)
    with open_remote(
        host, identity, ssh_option, accept_new_host_key, connect_timeout,
        folder=places.root, dry_run=dry_run, json_mode=json_,
    ) as remote:  # fmt: skip
        from voicehub_remote.deployment import deploy_to

        result, human = deploy_to(remote, places, upload, request)
    finish({"deploy": result}, json_mode=json_, human=human)
