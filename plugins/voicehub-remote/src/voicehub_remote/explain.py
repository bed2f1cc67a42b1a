"""From what ssh, a shell or rsync wrote to standard error, what went wrong and what to do."""

from __future__ import annotations

import re

from voicehub_remote.errors import (
    AuthenticationError,
    ConnectError,
    ConnectionLostError,
    HostKeyError,
    UnreachableError,
)
from voicehub_remote.target import Target

NO_SPACE = "No space left on device"

_REFUSED_KEYS = ("Permission denied (", "Too many authentication failures", "no such identity")
_BAD_KEY = re.compile(
    r"Load key \"?(?P<key>[^\":]+)\"?: (?P<why>.+)|(?P<open>UNPROTECTED PRIVATE KEY FILE)"
)
_CHANGED_HOST = "REMOTE HOST IDENTIFICATION HAS CHANGED"
_UNKNOWN_HOST = ("Host key verification failed", "host key is known for")
_SILENT = {
    "Could not resolve hostname": "no host of that name is known here. Check the name.",
    "Name or service not known": "no host of that name is known here. Check the name.",
    "Connection refused": "nothing listens at that port. Is it right, and does sshd run there?",
    "No route to host": "there is no way to it. Is the machine up?",
    "Network is unreachable": "this machine has no way to its network. Is the network up?",
    "banner exchange": "something listens there but does not speak ssh in time. Is the port right?",
    "timed out": "nobody answered in time. Is the machine up, and does a firewall let ssh through?",
}
_LOST = (
    "client_loop",
    "Connection closed by",
    "Connection reset by",
    "Connection to",  # "... closed by remote host"
    "Shared connection to",
    "Broken pipe",
    "Timeout, server",
    "read from master failed",
    "kex_exchange_identification",
)
# Which package a program comes with.
_PACKAGES = {"tmux": "tmux", "rsync": "rsync", "python3": "python3", "git": "git", "ssh": "openssh"}
_NOT_FOUND = re.compile(
    r"(?:^|[:\s'\"])(?P<tool>[\w./+-]+): (?:command )?not found"
    r"|env: .?(?P<env>[\w./+-]+).?: No such",
    re.MULTILINE,
)
# GNU tools write typographic quotes where the locale has them.
_FULL_PATH = re.compile(
    r"(?:[\"'\u2018\u201c](?P<quoted>[^\"'\u2018\u2019\u201d]*/[^\"'\u2018\u2019\u201d]*)[\"'\u2019\u201d]"
    r"|(?P<bare>[^\s:]*/[^\s:]+)).{0,40}?" + NO_SPACE
)


def why_no_connection(target: Target, text: str, *, was_open: bool) -> ConnectError | None:
    """The reason that ssh gave for having no connection; None where it gave none that we know.

    Args:
        target: the host.
        text: standard error of ssh.
        was_open: whether it had been connected before: what breaks off then was lost midway.
    """
    if _CHANGED_HOST in text:
        return HostKeyError(
            f"{target}: the host shows ANOTHER key than it did before. Either it was set up anew, "
            "or somebody stands between. Ask whoever runs it; then remove the old key with: "
            f"ssh-keygen -R {_known_name(target)}"
        )
    if any(phrase in text for phrase in _UNKNOWN_HOST):
        return HostKeyError(
            f"{target}: this host was never seen from here, and its key is not trusted by itself. "
            "Compare its fingerprint with what its owner says, and connect once with ssh; or give "
            "--accept-new-host-key."
        )
    if any(phrase in text for phrase in _REFUSED_KEYS):
        return _refused_key(target, text)
    if was_open and any(phrase in text for phrase in _LOST):
        return ConnectionLostError(
            f"{target}: the connection broke off ({_last_line(text)}). A training run in tmux goes "
            f"on there: `voicehub remote attach {target}` comes back to it."
        )
    for phrase, reason in _SILENT.items():
        if phrase in text:
            return UnreachableError(f"{target}: {reason} ssh says: {_last_line(text)}")
    if any(phrase in text for phrase in _LOST):
        return UnreachableError(
            f"{target}: it hung up before we were let in. Is it sshd that listens there, and does "
            f"it take more connections? ssh says: {_last_line(text)}"
        )
    return None


def missing_tool(text: str) -> str | None:
    """The program that a shell did not find."""
    found = _NOT_FOUND.search(text)
    return (found["tool"] or found["env"]) if found else None


def how_to_install(tool: str) -> str:
    """What to do about a missing program."""
    package = _PACKAGES.get(tool)
    if package is None:
        return "Install it there."
    return (
        f"Install it: `apt-get install -y {package}` (Debian, Ubuntu), `dnf install -y {package}` "
        f"(Fedora), `apk add {package}` (Alpine), `brew install {package}` (macOS)."
    )


def full_path(text: str) -> str | None:
    """The file or folder that a message about a full disk names."""
    found = _FULL_PATH.search(text)
    return (found["quoted"] or found["bare"]) if found else None


def tail_of(text: str, lines: int = 6) -> str:
    """The last lines of an output, without the empty ones, for the end of a message."""
    kept = [line.rstrip() for line in text.splitlines() if line.strip()][-lines:]
    return "\n".join(f"  {line}" for line in kept)


def _refused_key(target: Target, text: str) -> AuthenticationError:
    bad = _BAD_KEY.search(text)
    if bad is not None:
        why = bad["why"] or "others may read the file (chmod 600 it)"
        return AuthenticationError(
            f"{target}: ssh cannot use the key {bad['key'] or target.identity}: {why.strip()}. It "
            "needs the private key, without a passphrase or held by ssh-agent."
        )
    tried = (
        f"with the key {target.identity}"
        if target.identity is not None
        else "with the keys of your agent and of ~/.ssh"
    )
    methods = re.search(r"Permission denied \(([\w,@.-]+)\)", text)
    accepts = f" The host accepts: {methods[1]}." if methods else ""
    user = f"user {target.user}" if target.user else "your user"
    return AuthenticationError(
        f"{target}: the host refused {user} {tried}.{accepts} Check the user's name, give the "
        "right key with --identity FILE, or have its .pub added to ~/.ssh/authorized_keys there. "
        "Passwords are not asked for, and a key with a passphrase must be held by ssh-agent."
    )


def _known_name(target: Target) -> str:
    return f"'[{target.host}]:{target.port}'" if target.port not in (None, 22) else target.host


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "nothing"
