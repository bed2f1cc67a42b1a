"""Options that the verbs share, and the host that they stand for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from voicehub_remote.ssh import Remote

_SSH = "Connection"

HostArgument = Annotated[
    str,
    typer.Argument(
        metavar="HOST[:PORT]",
        help="USER@HOST:PORT, an alias of ~/.ssh/config, or a machine of `up`.",
    ),
]
IdentityOption = Annotated[
    Path | None, typer.Option("--identity", "-i", help="Private key.", rich_help_panel=_SSH)
]
SshOption = Annotated[
    list[str] | None,
    typer.Option("--ssh-option", "-o", help="NAME=VALUE, as ssh -o takes.", rich_help_panel=_SSH),
]
NewHostKeyOption = Annotated[
    bool,
    typer.Option(
        "--accept-new-host-key", help="Trust a host never seen before.", rich_help_panel=_SSH
    ),
]
ConnectTimeoutOption = Annotated[
    int,
    typer.Option("--connect-timeout", min=1, help="Seconds.", rich_help_panel=_SSH),
]
RootOption = Annotated[
    str | None,
    typer.Option(
        "--root", help="Folder there that holds everything.", show_default="voicehub/PROJECT"
    ),
]
ProjectOption = Annotated[
    Path, typer.Option("--project", help="Folder of the project, here.", file_okay=False)
]
NameOption = Annotated[
    str | None, typer.Option("--name", help="Which run.  [the one that was started last]")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print every command, and run none.")]


def open_remote(
    host: str,
    identity: Path | None,
    ssh_option: list[str] | None,
    accept_new_host_key: bool,
    connect_timeout: int,
    *,
    folder: str = ".",
    dry_run: bool = False,
    json_mode: bool = False,
) -> Remote:
    """The host of these options. It connects with its first command.

    Args:
        host: USER@HOST:PORT, an alias, or the name of a machine that `up` has started.
        identity, ssh_option, accept_new_host_key, connect_timeout: the options above.
        folder: on the host, where things go: ``Places.root``.

    Raises:
        UsageError: an option is malformed, or the machine of that name has no address yet.
    """
    from voicehub_remote.ssh import Remote
    from voicehub_remote.target import Target

    target = Target.parse(
        _address(host, json_mode),
        identity=identity,
        options=tuple(ssh_option or ()),
        accept_new_host_key=accept_new_host_key,
        connect_timeout=connect_timeout,
    )
    return Remote(target, dry_run=dry_run, json_mode=json_mode, folder=folder)


def _address(host: str, json_mode: bool) -> str:
    """The host, or where the machine is that `up` has started under this name."""
    from voicehub.cli.output import UsageError, say
    from voicehub_remote.providers.machines import find

    record = find(host)
    if record is None:
        return host
    target = record.machine.target
    if target is None:
        raise UsageError(f"The machine {host} has no address yet: `voicehub remote wait {host}`.")
    say(f"{host} is {target}, a machine of {record.provider}", json_mode=json_mode)
    return target
