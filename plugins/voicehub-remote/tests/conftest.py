"""A host for the tests: a real sshd on loopback."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest
from loopback_sshd import TOOLS, Host, find, serve


@pytest.fixture(scope="session")
def sshd() -> Iterator[Host]:
    """The server. Every test takes a folder of its own below ``sshd.home``."""
    missing = [tool for tool in TOOLS if find(tool) is None]
    if missing and os.environ.get("VOICEHUB_REQUIRE_SSH") == "1":
        pytest.fail(f"VOICEHUB_REQUIRE_SSH=1, and {', '.join(missing)} is not installed")
    if missing or os.name != "posix":
        pytest.skip(f"needs {', '.join(missing) or 'a POSIX system'}")
    with serve() as host:
        yield host


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Something listens there and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        yield int(listener.getsockname()[1])
