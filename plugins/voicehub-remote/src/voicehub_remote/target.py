"""Which host, as whom and how: what stands behind ``voicehub remote VERB``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from voicehub.cli.output import UsageError

CONNECT_TIMEOUT = 15
_USER_OR_HOST = re.compile(r"[^\s@\[\]/'\"\\`$;&|<>(){}*?!#]+")


@dataclass(frozen=True)
class Target:
    """One host. ``host`` may be an alias of ``~/.ssh/config``: ssh itself looks it up.

    Attributes:
        host: name, alias or address; an IPv6 address without brackets.
        user: None leaves it to ssh.
        port: None leaves it to ssh.
        identity: private key; None leaves it to ssh and its agent.
        options: further ``-o`` options, ``Name=value``. They win over ours.
        accept_new_host_key: trust a host that was never seen; a changed key is refused always.
        connect_timeout: seconds.
    """

    host: str
    user: str | None = None
    port: int | None = None
    identity: Path | None = None
    options: tuple[str, ...] = ()
    accept_new_host_key: bool = False
    connect_timeout: int = CONNECT_TIMEOUT

    def __post_init__(self) -> None:
        if self.identity is not None and not self.identity.is_file():
            raise UsageError(
                f"--identity {self.identity}: there is no such file. Give the private key, the "
                "file without .pub."
            )
        for option in self.options:
            name, separator, _ = option.partition("=")
            if not separator or not name.strip().isalnum():
                raise UsageError(f"--ssh-option {option}: expected NAME=VALUE, as ssh -o takes it.")

    @classmethod
    def parse(
        cls,
        text: str,
        *,
        identity: Path | None = None,
        options: tuple[str, ...] = (),
        accept_new_host_key: bool = False,
        connect_timeout: int = CONNECT_TIMEOUT,
    ) -> Target:
        """``[USER@]HOST[:PORT]``; an IPv6 address with a port stands in brackets.

        Raises:
            UsageError: it is none of these.
        """
        user, at, rest = text.removeprefix("ssh://").rstrip("/").rpartition("@")
        host, port = _host_and_port(rest, text)
        for part in (user, host) if at else (host,):
            if not _USER_OR_HOST.fullmatch(part) or part.startswith("-"):
                raise _malformed(text)
        return cls(
            host, user or None, port, identity, options, accept_new_host_key, connect_timeout
        )

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host and self.port else self.host
        user = f"{self.user}@" if self.user else ""
        return f"{user}{host}" + (f":{self.port}" if self.port else "")

    @property
    def destination(self) -> str:
        """What ssh is told to connect to."""
        return f"{self.user}@{self.host}" if self.user else self.host

    def rsync_path(self, path: str) -> str:
        """A path on the host, as rsync names it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (f"{self.user}@" if self.user else "") + f"{host}:{path}"

    def ssh(self, *own: str) -> list[str]:
        """The words of ssh up to the destination, which comes next.

        Args:
            own: options of this call, in front of the rest.
        """
        known = "accept-new" if self.accept_new_host_key else "yes"
        options = [
            *self.options,
            "BatchMode=yes",
            f"ConnectTimeout={self.connect_timeout}",
            "ServerAliveInterval=15",
            "ServerAliveCountMax=4",
            f"StrictHostKeyChecking={known}",
        ]
        words = ["ssh", *own, *(word for option in options for word in ("-o", option))]
        if self.port is not None:
            words += ["-p", str(self.port)]
        if self.identity is not None:
            words += ["-i", str(self.identity), "-o", "IdentitiesOnly=yes"]
        return words


def _host_and_port(text: str, whole: str) -> tuple[str, int | None]:
    if text.startswith("["):
        host, bracket, behind = text[1:].partition("]")
        if not bracket or (behind and not behind.startswith(":")):
            raise _malformed(whole)
        return host, _port(behind[1:], whole) if behind else None
    if text.count(":") > 1:  # an IPv6 address as it stands
        return text, None
    host, colon, port = text.partition(":")
    return host, _port(port, whole) if colon else None


def _port(text: str, whole: str) -> int:
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= 65535:
        raise UsageError(f"{whole}: {text or 'nothing'} is no port. Expected 1 to 65535.")
    return int(text)


def _malformed(text: str) -> UsageError:
    return UsageError(
        f"{text!r} names no host. Write HOST, USER@HOST:PORT, [IPV6]:PORT or an alias of "
        "~/.ssh/config."
    )
