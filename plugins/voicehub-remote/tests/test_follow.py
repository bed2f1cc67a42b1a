"""The log of a run over connections that break."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from voicehub_remote.errors import ConnectionLostError, UnreachableError
from voicehub_remote.follow import MARK, Detached, Follower, come_back
from voicehub_remote.places import Places
from voicehub_remote.session import NoRunError, RunState, Session
from voicehub_remote.target import Target

LOG = b"one\ntwo\nthree\n"
STATE = b"run=demo\nstate=ended\ncode=3\n"


class Wire:
    """Each connection brings the log from where it is asked for, in pieces, until it breaks."""

    dry_run = False
    target = Target("somewhere")

    def __init__(self, *connections: Callable[[bytes], Sequence[Any]]) -> None:
        self.connections = list(connections)
        self.asked: list[int] = []

    def show(self, script: str, *, what: str, on_output: Callable[[bytes], None]) -> int:
        line = next(line for line in script.splitlines() if line.startswith("position="))
        self.asked.append(int(line.partition("=")[2]))
        on_output(b"Welcome to this host\n" + MARK[:3])
        on_output(MARK[3:])
        for piece in self.connections.pop(0)(LOG[self.asked[-1] :]):
            if isinstance(piece, BaseException):
                raise piece
            if isinstance(piece, int):
                return piece
            on_output(piece)
        return 0


def follow(wire: Wire, waits: tuple[float, ...] = (0.0, 0.0)) -> tuple[bytes, RunState, list[str]]:
    shown, told = bytearray(), list[str]()
    session = Session(wire, Places("x"), "demo")  # type: ignore[arg-type]
    state = Follower(session, 0, write=shown.extend, tell=told.append, waits=waits).run()
    return bytes(shown), state, told


def broken() -> ConnectionLostError:
    return ConnectionLostError("it broke")


def test_every_byte_comes_once_over_any_number_of_connections() -> None:
    wire = Wire(
        lambda log: [log[:5], broken()],
        lambda log: [log[:1], broken()],
        lambda log: [UnreachableError("away")],
        lambda log: [log + MARK[:3], broken()],
        lambda log: [log, MARK, STATE],
    )
    shown, state, told = follow(wire)
    assert shown == LOG
    assert wire.asked == [0, 5, 6, 6, len(LOG)]
    assert (state.state, state.code) == ("ended", 3)
    assert len(told) == 4


@pytest.mark.parametrize("size", range(1, 12))
def test_the_mark_is_found_however_it_is_cut(size: int) -> None:
    whole = LOG + MARK[:4] + b"not the mark\n" + MARK + STATE
    pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
    shown, state, _ = follow(Wire(lambda log: pieces))
    assert shown == LOG + MARK[:4] + b"not the mark\n"
    assert state.code == 3


def test_after_enough_tries_it_says_how_to_come_back() -> None:
    wire = Wire(lambda log: [log[:4], broken()], *[lambda log: [broken()]] * 2)
    back = "voicehub remote attach somewhere --name demo --root x"
    with pytest.raises(ConnectionLostError, match=back) as caught:
        follow(wire)
    assert "it broke" in str(caught.value)
    assert wire.asked == [0, 4, 4]


def test_ctrl_c_leaves_the_run_and_says_how_to_come_back() -> None:
    with pytest.raises(Detached, match="the run goes on"):
        follow(Wire(lambda log: [log[:4], KeyboardInterrupt()]))


def test_the_way_back_has_the_options_of_the_way_there() -> None:
    wire = Wire()
    wire.target = Target("gpu", port=2222, options=("ProxyJump=hop", "User=a b"))
    said = come_back(Session(wire, Places("elsewhere"), "demo"))  # type: ignore[arg-type]
    assert "attach gpu:2222 --name demo --root elsewhere" in said
    assert said.endswith("--ssh-option ProxyJump=hop --ssh-option 'User=a b'")


def test_a_run_without_a_log_is_none() -> None:
    with pytest.raises(NoRunError, match="no log of a run demo"):
        follow(Wire(lambda log: [1]))
