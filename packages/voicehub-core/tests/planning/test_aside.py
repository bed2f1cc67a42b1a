"""Work in a copy of this process: what comes back, and what does not."""

from __future__ import annotations

import os
import random
import resource
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


def test_what_is_not_there_to_settle_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container without /proc, for one."""

    def no_list(keep: int) -> None:
        raise FileNotFoundError("no /proc/self/fd")

    monkeypatch.setattr(aside, "_leave_connections", no_list)
    assert answers_of(hang) == [{"problem": "FileNotFoundError: no /proc/self/fd"}]


def test_a_session_with_less_time_is_no_obstacle_and_memory_is_the_runs() -> None:
    """``ulimit -t``; and where memory runs out the system ends the copy, not the run."""

    def inner() -> Iterator[dict[str, Any]]:
        score = Path("/proc/self/oom_score_adj").read_text()
        yield {"limits": resource.getrlimit(resource.RLIMIT_CPU), "score": int(score)}

    def limited() -> Iterator[dict[str, Any]]:
        resource.setrlimit(resource.RLIMIT_CPU, (100, 100))
        yield from answers_of(inner)

    assert answers_of(limited) == [{"limits": [100, 100], "score": 1000}]


def test_no_signal_comes_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the handlers of the run would run in the copy, and its exceptions rise there."""
    blocked: list[set[int]] = []
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])

    def full() -> int:
        blocked.append(set(signal.pthread_sigmask(signal.SIG_BLOCK, [])))
        raise BlockingIOError("Resource temporarily unavailable")

    with monkeypatch.context() as patched, pytest.raises(AsideError):
        patched.setattr(os, "fork", full)
        Aside(hang)
    assert {signal.SIGINT, signal.SIGTERM} <= blocked[0]
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before

    def masked() -> Iterator[dict[str, Any]]:
        yield {"same": signal.pthread_sigmask(signal.SIG_BLOCK, []) == before}

    assert answers_of(masked) == [{"same": True}]


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
