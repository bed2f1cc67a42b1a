"""Wait until a machine is there and lets us in."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from voicehub_remote.errors import (
    AuthenticationError,
    ConnectError,
    HostKeyError,
    RemoteError,
    RemoteTimeoutError,
)
from voicehub_remote.providers.contract import Machine, MachineState, ProviderError
from voicehub_remote.providers.http import NoAnswerError

# Keys are often put in place a moment after sshd has begun to listen.
_REFUSALS = 4


@dataclass(frozen=True)
class Patience:
    """How long to wait.

    Attributes:
        seconds: altogether.
        interval: seconds between two looks.
        clock, sleep: of the machine we run on.
    """

    seconds: float
    interval: float = 5.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class Looks(Protocol):
    """The part of a provider that is needed here."""

    def look(self, machine: Machine) -> Machine:
        """The machine as it is now."""


def wait_for_machine(
    provider: Looks,
    machine: Machine,
    knock: Callable[[str], None],
    patience: Patience,
    say: Callable[[str], None],
) -> Machine:
    """Look after the machine until it has an address and ssh answers there.

    Args:
        provider: of the machine.
        machine: as it was when it was started.
        knock: logs in at ``USER@HOST:PORT``.
        patience: when to give up.
        say: takes a line whenever something has changed.

    Raises:
        RemoteTimeoutError: it is not there in time; says what was last heard.
        ProviderError: it was stopped or is gone.
        HostKeyError, AuthenticationError: it is there and does not let us in, or is not known.
    """
    until, refusals, heard = patience.clock() + patience.seconds, 0, ""
    while True:
        machine, now, error = _look(provider, machine, knock)
        if now is None:
            return replace(machine, state=MachineState.RUNNING)
        refusals = refusals + 1 if isinstance(error, AuthenticationError) else 0
        if isinstance(error, HostKeyError) or (error is not None and refusals >= _REFUSALS):
            raise error
        if now != heard:
            heard = now
            say(f"{machine.name}: {now}")
        if patience.clock() + patience.interval > until:
            raise RemoteTimeoutError(
                f"{machine.name} was not ready in {patience.seconds / 60:g} minutes. Last heard: "
                f"{heard} It goes on, and may cost: wait again with `voicehub remote wait "
                f"{machine.name}`, or end it with `voicehub remote down {machine.name}`."
            )
        patience.sleep(patience.interval)


def _look(
    provider: Looks, machine: Machine, knock: Callable[[str], None]
) -> tuple[Machine, str | None, RemoteError | None]:
    """The machine; what it still lacks, None if nothing; and the error that said so."""
    try:
        machine = provider.look(machine)
    except NoAnswerError as error:  # the network may come back
        return machine, str(error), error
    if machine.state in (MachineState.STOPPED, MachineState.GONE):
        raise ProviderError(
            f"The machine {machine.name} is {machine.state.value}: it was ended, or its provider "
            "took it back. Start another with `voicehub remote up`."
        )
    if machine.target is None:
        return machine, f"{machine.state.value}, without an address yet.", None
    try:
        knock(machine.target)
    except ConnectError as error:
        return machine, str(error), error
    return machine, None, None


class AnyHost:
    """Stands for the provider of a host that nobody here has started: it is where it is."""

    def look(self, machine: Machine) -> Machine:
        """The same."""
        return machine
