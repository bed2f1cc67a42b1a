"""Work in a copy of this process: what comes back, and what does not."""

from __future__ import annotations

import os
import random
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from voicehub.planning import aside
from voicehub.planning.aside import Aside, AsideError

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks")
PATIENCE = 60.0


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy is what a test waits for."""
    monkeypatch.setattr(aside, "NICENESS", 0)


def answers_of(work: Callable[[], Any]) -> list[dict[str, Any]]:
    copy = Aside(work)
    found: list[dict[str, Any]] = []
    while more := copy.take(PATIENCE):
        found += more
    copy.close()
    return found


def is_gone(pid: int) -> bool:
    """Whether a process has ended, buried or not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in "ZX"


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_gone(pid):
        assert time.monotonic() < deadline, f"{pid} is still there"
        time.sleep(0.01)


def test_answers_come_in_order_and_nothing_else_does(capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[int] = []
    before = random.getstate()

    def work() -> Iterator[dict[str, Any]]:
        for number in range(3):
            print("nobody reads this", flush=True)
            seen.append(number)
            yield {"number": number, "drawn": random.random()}

    found = answers_of(work)
    assert [answer["number"] for answer in found] == [0, 1, 2]
    assert not seen and random.getstate() == before
    assert capfd.readouterr().out == ""


def test_an_error_and_a_death_are_answers() -> None:
    def fails() -> Iterator[dict[str, Any]]:
        yield {"number": 1}
        raise ValueError("two\nlines")

    assert answers_of(fails) == [{"number": 1}, {"problem": "ValueError: two lines"}]

    def killed_by(number: int) -> Callable[[], Any]:
        return lambda: os.kill(os.getpid(), number)

    assert answers_of(killed_by(signal.SIGKILL)) == [{"problem": "its process ended by SIGKILL"}]
    limit = [{"problem": f"more than {aside.LIMIT} seconds of computing"}]
    assert answers_of(killed_by(signal.SIGXCPU)) == limit


def test_ends_of_connections_are_those_of_the_parent_alone() -> None:
    """Whoever waits at the other end sees when the parent is gone, not when its copy is."""
    here, there = socket.socketpair()

    def open_there() -> Iterator[dict[str, Any]]:
        try:
            os.fstat(here.fileno())
        except OSError:
            yield {"open": False}
        else:
            yield {"open": True}

    assert answers_of(open_there) == [{"open": False}]
    here.close()
    there.close()


def hang() -> Iterator[dict[str, Any]]:
    yield {"pid": os.getpid()}
    while True:
        time.sleep(60)


def test_it_ends_when_it_is_closed() -> None:
    copy = Aside(hang)
    (answer,) = copy.take(PATIENCE)
    assert not copy.take()
    copy.close()
    copy.close()
    wait_until_gone(answer["pid"])


def test_it_goes_when_its_parent_goes() -> None:
    def parent() -> Iterator[dict[str, Any]]:
        inner = Aside(hang)
        yield inner.take(PATIENCE)[0]
        time.sleep(PATIENCE)

    outer = Aside(parent)
    (answer,) = outer.take(PATIENCE)
    outer.close()  # a kill, after which nothing of it can end the inner one
    wait_until_gone(answer["pid"])


def test_where_there_can_be_no_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> int:
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", full)
    with pytest.raises(AsideError, match="no room for another process"):
        Aside(hang)
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(AsideError, match="this is darwin"):
        Aside(hang)
