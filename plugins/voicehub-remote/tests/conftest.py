"""A host for the tests: a real sshd on loopback."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from loopback_sshd import TOOLS, Host, find, serve
from voicehub_remote.ssh import Remote

_TRAINS = frozenset({"test_description", "test_story", "test_verbs"})


@pytest.fixture(scope="session")
def sshd() -> Iterator[Host]:
    """The server. Every test takes a folder of its own below ``sshd.home``."""
    missing = [tool for tool in TOOLS if find(tool) is None]
    if missing and os.environ.get("VOICEHUB_REQUIRE_SSH") == "1":
        pytest.fail(f"VOICEHUB_REQUIRE_SSH=1, and {', '.join(missing)} is not installed")
    if missing or os.name != "posix":
        pytest.skip(f"needs {', '.join(missing) or 'a POSIX system'}")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell
        signal.signal(signal.SIGINT, signal.default_int_handler)
    with serve() as host:
        yield host


@pytest.fixture(scope="module", autouse=True)
def composed_once() -> Iterator[None]:
    """The same words are composed once: that takes longer than all that these tests are about."""
    from voicehub.cli import compose

    compose_preset, known = compose.compose_preset, dict[tuple[str, ...], compose.Composition]()

    def remembered(preset: str, overrides: Sequence[str] = (), **more: Any) -> compose.Composition:
        words = (preset, *overrides)
        if more or Path("configs").exists():
            return compose_preset(preset, overrides, **more)
        if words not in known:
            known[words] = compose_preset(preset, overrides)
        return known[words]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compose, "compose_preset", remembered)
        yield


@pytest.fixture
def full_disk(sshd: Host) -> Iterator[str]:
    """A folder of the host on a disk of 64 KiB, empty before and after."""
    if sshd.full_disk is None:
        pytest.skip("a small disk cannot be mounted here")
    yield sshd.full_disk
    with Remote(sshd.target()) as remote:
        remote.run(f"rm -rf {sshd.full_disk}/*", what="tidy up")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where this plugin is alone with the core there is nothing that could be trained."""
    if find_spec("voicehub_example") is None:
        skip = pytest.mark.skip(reason="trains example/tiny: needs voicehub-example")
        for item in items:
            if item.path.parent == Path(__file__).parent and item.path.stem in _TRAINS:
                item.add_marker(skip)


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Something listens there and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        yield int(listener.getsockname()[1])
