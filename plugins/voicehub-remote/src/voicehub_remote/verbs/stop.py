"""``voicehub remote stop``: end a run, and the machine where that is asked for."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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

if TYPE_CHECKING:
    from voicehub_remote.providers.machines import Record
    from voicehub_remote.session import RunState, Session
    from voicehub_remote.ssh import Remote

_LOOKS, _BETWEEN = 10, 0.5  # the host looks once a second


def stop(
    host: HostArgument,
    name: NameOption = None,
    now: Annotated[
        bool, typer.Option("--now", help="Kill it, without a checkpoint of the last steps.")
    ] = False,
    machine: Annotated[
        bool,
        typer.Option("--machine", help="And then HOST, a machine of `up`; its disk stays."),
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
    """End a run as Ctrl-C does: it saves a checkpoint, which is waited for. --on-end runs as well.

    Where the training has ended and --on-end has not begun, that is cancelled.
    """
    from voicehub_remote.follow import Follower, to_stream
    from voicehub_remote.places import Places
    from voicehub_remote.providers import machines
    from voicehub_remote.runs import as_dict, end, session_of

    record = machines.require(host) if machine else None
    places = Places.of(project, root)
    with open_remote(
        host, identity, ssh_option, accept_new_host_key, connect_timeout,
        folder=places.root, dry_run=dry_run, json_mode=json_,
    ) as remote:  # fmt: skip
        session, _ = session_of(remote, places, name)
        before = session.stop(now=now)
        state = before
        if before.goes_on or dry_run:
            if not dry_run:
                say("told to end; following until it has", json_mode=True)
            state = Follower(
                session,
                before.log_bytes,
                write=to_stream(json_),
                tell=lambda text: say(text, json_mode=True),
            ).run()
        elif before.state == "ending":
            state = _after_cancelling(session)
    human = f"{session.run}: {state.words()}"
    if before.goes_on and state.code != 0:
        human += "\nIt goes on with `voicehub remote train`."
    result = {"run": as_dict(state), "was": before.state}
    if record is not None:
        human += "\n" + _stop_machine(remote, record)
    end(remote, result, json_mode=json_, human=human)


def _stop_machine(remote: Remote, record: Record) -> str:
    from voicehub_remote.providers import machines

    if remote.dry_run:
        for line in record.open().plan("stop", record.machine):
            remote.say(line)
            remote.commands.append(line)
        return ""
    return f"{record.machine.name}: {machines.stop(record).state.value}"


def _after_cancelling(session: Session) -> RunState:
    """The state once the command for the end is cancelled; one that runs is not waited for."""
    for _ in range(_LOOKS):
        state = session.state()
        if state.state != "ending":
            break
        time.sleep(_BETWEEN)
    return state
