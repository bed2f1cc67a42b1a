"""``voicehub remote wait``: until a machine answers over ssh."""

from __future__ import annotations

from typing import Annotated

import typer

from voicehub.cli.options import JsonOption
from voicehub.cli.output import finish, say
from voicehub_remote.options import (
    ConnectTimeoutOption,
    DryRunOption,
    IdentityOption,
    NewHostKeyOption,
    SshOption,
    open_remote,
)


def wait(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A machine of `up`, or any HOST[:PORT].")
    ],
    minutes: Annotated[float, typer.Option(min=0.01, help="How long at most.")] = 20.0,
    interval: Annotated[float, typer.Option(min=0.01, help="Seconds between two looks.")] = 5.0,
    identity: IdentityOption = None,
    ssh_option: SshOption = None,
    accept_new_host_key: NewHostKeyOption = False,
    connect_timeout: ConnectTimeoutOption = 15,
    dry_run: DryRunOption = False,
    json_: JsonOption = False,
) -> None:
    """Wait until the machine has an address and lets us in."""
    from voicehub_remote.providers import machines
    from voicehub_remote.providers.contract import Machine
    from voicehub_remote.waiting import AnyHost, Looks, Patience, wait_for_machine

    def knock(target: str) -> None:
        with open_remote(
            target, identity, ssh_option, accept_new_host_key, connect_timeout,
            dry_run=dry_run, json_mode=json_,
        ) as remote:  # fmt: skip
            remote.run("true", what="log in")

    record = machines.find(name)
    provider: Looks = AnyHost() if record is None else record.open()
    machine = Machine(name, name, name) if record is None else record.machine
    if dry_run:
        asked = [] if record is None else record.open().plan("look", machine)
        for line in asked:
            say(line, json_mode=json_)
        knock(machine.target or name)
        finish({"machine": {"name": name, "commands": asked}}, json_mode=json_)
        return
    machine = wait_for_machine(
        provider,
        machine,
        knock,
        Patience(minutes * 60, interval),
        lambda text: say(text, json_mode=True),
    )
    if record is not None:
        machines.save(machines.Record(machine, record.provider, record.settings))
    finish(
        {"machine": machines.as_dict(machine)},
        json_mode=json_,
        human=f"{name}: {machine.target} answers",
    )
