"""What a provider of machines does, and what it is told and tells."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from voicehub_remote.errors import RemoteError


class ProviderError(RemoteError):
    """A provider cannot do what is asked, or did not answer."""


class NoCapacityError(ProviderError):
    """The provider has no machine of that kind free now."""


class CredentialsError(ProviderError):
    """The provider does not know us."""


class MachineState(enum.Enum):
    """How a machine stands."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"
    GONE = "gone"


@dataclass(frozen=True)
class MachineRequest:
    """What machine is wanted.

    Attributes:
        name: ours, for the machine.
        gpu: kind, such as ``H100``; None where none is needed.
        gpus: how many.
        image: container or disk image; None leaves it to the provider's settings.
        disk: GB; None leaves it to the provider.
        public_key: text of the key that shall be let in; never a private one.
    """

    name: str
    gpu: str | None = None
    gpus: int = 1
    image: str | None = None
    disk: int | None = None
    public_key: str | None = None


@dataclass(frozen=True)
class Machine:
    """A machine as its provider knows it.

    Attributes:
        name: ours.
        id: the provider's.
        target: ``USER@HOST:PORT`` as soon as it is known.
        state: as last heard.
        cost: what the provider said of its price, for a person; may be empty.
    """

    name: str
    id: str
    target: str | None = None
    state: MachineState = MachineState.STARTING
    cost: str = ""


Deed = Literal["up", "look", "stop", "down"]


class Provider(Protocol):
    """A provider. Its factory is called with settings ``--set KEY=VALUE``, and refuses unknown ones
    with a ``UsageError``. Secrets come from environment variables, never from settings.
    """

    def up(self, request: MachineRequest) -> Machine:
        """Start a machine; it need not be reachable yet.

        Raises:
            NoCapacityError, CredentialsError, ProviderError: nothing was started.
        """

    def look(self, machine: Machine) -> Machine:
        """The machine as it is now, ``GONE`` where the provider has none of that id.

        Raises:
            ProviderError: the provider did not answer.
        """

    def stop(self, machine: Machine) -> None:
        """Stop it and keep its disk.

        Raises:
            ProviderError: it may still run.
        """

    def down(self, machine: Machine) -> None:
        """End it with its disk. One that is gone already is no error.

        Raises:
            ProviderError: it may still run.
        """

    def plan(self, deed: Deed, subject: MachineRequest | Machine) -> list[str]:
        """What a method would do, each as a line that can be copied into a shell, without secrets.

        Args:
            deed: name of the method.
            subject: what it would be given.
        """


@dataclass(frozen=True)
class Settings:
    """Settings of a provider, read once each.

    Attributes:
        values: by key.
        known: keys that there are, with what they mean.
    """

    values: Mapping[str, str]
    known: Mapping[str, str] = field(default_factory=dict)

    def check(self, provider: str) -> None:
        """Refuse keys that the provider does not know.

        Raises:
            UsageError: names them and those that there are.
        """
        from voicehub.cli.output import UsageError
        from voicehub.suggest import did_you_mean

        for key in self.values:
            if key not in self.known:
                meanings = "".join(f"\n  {one}: {text}" for one, text in self.known.items())
                raise UsageError(
                    f"--set {key}: the provider {provider} has no such setting."
                    f"{did_you_mean(key, list(self.known))} It has:{meanings}"
                )
