"""``voicehub remote down`` and ``machines``: end a machine of a provider, and list them."""

from __future__ import annotations

from typing import Annotated

import typer

from voicehub.cli.options import JsonOption
from voicehub.cli.output import finish
from voicehub.cli.tables import table
from voicehub_remote.options import DryRunOption


def down(
    name: Annotated[str, typer.Argument(help="A machine that `up` has started.")],
    keep_disk: Annotated[
        bool, typer.Option("--keep-disk", help="Stop it only. The disk may still cost.")
    ] = False,
    dry_run: DryRunOption = False,
    json_: JsonOption = False,
) -> None:
    """End the machine with its disk: what was not fetched is lost."""
    from voicehub_remote.providers import machines
    from voicehub_remote.providers.contract import MachineState

    record = machines.require(name)
    provider = record.open()
    if dry_run:
        commands = provider.plan("stop" if keep_disk else "down", record.machine)
        result = {"name": name, "commands": commands}
        finish({"machine": result}, json_mode=json_, human="\n".join(commands))
        return
    if keep_disk:
        state = machines.stop(record).state
    else:
        provider.down(record.machine)
        state = MachineState.GONE
        machines.forget(name)
    ended = {"name": name, "provider": record.provider, "state": state.value}
    finish({"machine": ended}, json_mode=json_, human=f"{name}: {state.value}")


def machines(dry_run: DryRunOption = False, json_: JsonOption = False) -> None:
    """List machines that were started from here, as their providers know them now."""
    from voicehub_remote.providers import machines as started
    from voicehub_remote.providers.contract import ProviderError

    if dry_run:
        records = [started.require(name) for name in started.names()]
        commands = [line for one in records for line in one.open().plan("look", one.machine)]
        finish({"commands": commands}, json_mode=json_, human="\n".join(commands))
        return
    rows, told = [], []
    for name in started.names():
        record = started.require(name)
        try:
            machine = record.open().look(record.machine)
        except ProviderError as error:  # the others are told of all the same
            machine, state = record.machine, f"unknown: {error}"
        else:
            state = machine.state.value
            started.save(started.Record(machine, record.provider, record.settings))
        rows.append((name, record.provider, state, machine.target or "", machine.cost))
        told.append({**started.as_dict(machine), "provider": record.provider, "state": state})
    human = table(("name", "provider", "state", "address", "cost"), rows)
    finish(
        {"machines": told}, json_mode=json_, human=human if rows else "No machines were started."
    )
