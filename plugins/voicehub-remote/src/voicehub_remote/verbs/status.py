"""``voicehub remote status``: the runs of a host, and how they stand."""

from __future__ import annotations

from pathlib import Path

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


def status(
    host: HostArgument,
    name: NameOption = None,
    root: RootOption = None,
    project: ProjectOption = Path(),
    identity: IdentityOption = None,
    ssh_option: SshOption = None,
    accept_new_host_key: NewHostKeyOption = False,
    connect_timeout: ConnectTimeoutOption = 15,
    dry_run: DryRunOption = False,
    json_: JsonOption = False,
) -> None:
    """List the runs of a host: which go on, which have ended and how, which were cut off."""
    from voicehub_remote.places import Places
    from voicehub_remote.runs import as_dict, end
    from voicehub_remote.session import NoRunError, all_states

    places = Places.of(project, root)
    with open_remote(
        host, identity, ssh_option, accept_new_host_key, connect_timeout,
        folder=places.root, dry_run=dry_run, json_mode=json_,
    ) as remote:  # fmt: skip
        states = all_states(remote, places)
    if name is not None and not dry_run:
        states = [state for state in states if state.run == name]
        if not states:
            raise NoRunError(f"{remote.target} has no run {name} below {places.root}.")
    lines = [
        f"{state.run}: {state.words()}\n  {state.preset} in {state.output}" for state in states
    ]
    human = "\n".join(lines) or f"no run below {places.root}"
    result = {"runs": [as_dict(state) for state in states]}
    end(remote, result, json_mode=json_, human=human)
