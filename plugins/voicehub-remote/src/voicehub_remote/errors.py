"""What goes wrong between here and a host. Each says what was wrong, where, and what to do."""

from __future__ import annotations

from voicehub.errors import VoiceHubError


class RemoteError(VoiceHubError):
    """A command on the host, or the way to it, failed."""


class ConnectError(RemoteError):
    """There is no connection to the host."""


class AuthenticationError(ConnectError):
    """The host does not let us in: no key, a wrong one, or one that ssh cannot use."""


class HostKeyError(ConnectError):
    """The host is not known, or shows another key than it did before."""


class UnreachableError(ConnectError):
    """Nobody answers there: refused, no route, no such name, or silence."""


class ConnectionLostError(ConnectError):
    """The connection was there and broke off. What runs in tmux on the host goes on."""


class CommandError(RemoteError):
    """A command ran on the host and failed.

    Attributes:
        code: its exit code.
        output: what it wrote to standard error.
    """

    def __init__(self, message: str, *, code: int, output: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.output = output


class DiskFullError(CommandError):
    """The disk of the host is full; the message names the folder and what is free."""


class MissingToolError(CommandError):
    """A program is not installed, there or here; the message says how to install it."""


class RemoteTimeoutError(RemoteError):
    """A command on the host did not end in the time it was given."""
