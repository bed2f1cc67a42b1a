"""The direct line between ranks of one machine. Ranks are threads here: each has its own ends."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from voicehub.strategies import local_link
from voicehub.strategies.gradient_sums import SharedMemorySums
from voicehub.strategies.local_link import LinkError, LocalLink, connect

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the link is for Linux")
LIMIT = 60.0


def on_ranks(size: int, work: Callable[[int, Callable[[Any], list[Any]]], Any]) -> list[Any]:
    """Call ``work(rank, exchange)`` in a thread a rank; results by rank."""
    barrier = threading.Barrier(size, timeout=LIMIT)
    board: list[Any] = [None] * size

    def run(rank: int) -> Any:
        def exchange(value: Any) -> list[Any]:
            board[rank] = value
            barrier.wait()
            found = list(board)
            barrier.wait()
            return found

        return work(rank, exchange)

    with ThreadPoolExecutor(size) as threads:
        return list(threads.map(run, range(size)))


def linked(size: int) -> list[LocalLink]:
    links = on_ranks(size, lambda rank, exchange: connect(rank, size, exchange))
    assert all(isinstance(link, LocalLink) for link in links)
    return links


def open_files() -> set[str]:
    """What this process has open, but for the listing itself."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.add(str(entry.readlink()))
    return {name for name in found if "/fd" not in name}


def test_rows_come_by_number_in_whatever_order_they_are_asked_for() -> None:
    links = linked(3)
    first = [link.send(f"first of {link.rank}".encode(), 10) for link in links]
    second = [link.send(b"x" * 2048, 9999) for link in links]
    third = [link.send(b"", 0) for link in links]
    for link in links:
        others = {0, 1, 2} - {link.rank}
        rows = link.receive(second[link.rank], LIMIT)
        assert rows == dict.fromkeys(others, (9999, b"x" * 2048))
        rows = link.receive(first[link.rank], LIMIT)
        assert rows == {other: (10, f"first of {other}".encode()) for other in others}
        assert link.receive(third[link.rank], LIMIT) == dict.fromkeys(others, (0, b""))
        link.close()


def test_a_row_that_comes_in_pieces_is_put_together() -> None:
    inbox = local_link._Inbox()
    sent = b"".join(len(row).to_bytes(8, "little") + row for row in (b"one", b"", b"three"))
    for byte in sent:
        inbox.add(bytes([byte]))
    assert inbox.rows == {1: (3, b"one"), 2: (0, b""), 3: (5, b"three")}


def test_a_rank_that_is_late_or_gone_is_named() -> None:
    first, second = linked(2)
    number = first.send(b"here", 4)
    with pytest.raises(LinkError, match="connection to rank 1 timed out"):
        first.receive(number, 0.001)
    assert not first.noticed(1, 0.0)
    second.send(b"last words", 10)
    second.close()
    assert first.receive(number, LIMIT) == {1: (10, b"last words")}
    with pytest.raises(LinkError, match="connection to rank 1 was closed"):
        first.receive(number + 1, LIMIT)
    with pytest.raises(LinkError, match="connection to rank 1 was closed"):
        first.noticed(1, 0.0)
    with pytest.raises(LinkError, match="connection to rank 1 is broken"):
        first.send(b"anybody?", 8)
    first.close()


def test_sums_are_in_the_order_of_ranks_and_halves_do_not_mix() -> None:
    """Phases of all sizes, with nothing between them but the sums themselves."""
    phases = 60
    links = linked(3)

    def rows(rank: int, phase: int) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(1000 * phase + rank)
        dtype = torch.float64 if phase % 3 else torch.float32
        return [
            torch.randn(1 + (phase * 37 + message * 11) % 300, generator=generator, dtype=dtype)
            for message in range(phase % 4)
        ]

    def work(rank: int, exchange: Any) -> list[list[torch.Tensor]]:
        sums, found = SharedMemorySums(links[rank], LIMIT), []
        for phase in range(phases):
            sums.begin()
            pending = [sums.send([row, row[:1]]) for row in rows(rank, phase)]
            found.append([one.take() for one in pending])
        return found

    totals = on_ranks(3, work)
    for phase in range(phases):
        parts = [rows(rank, phase) for rank in range(3)]
        for message in range(phase % 4):
            expected = (parts[0][message] + parts[1][message]) + parts[2][message]
            for total in totals:
                assert torch.equal(total[phase][message][:-1], expected)
    for link in links:
        link.close()


def test_what_is_ready_is_known_without_waiting() -> None:
    links = linked(2)
    first, second = (SharedMemorySums(link, LIMIT) for link in links)
    pending = first.send([torch.ones(3)])
    assert not pending.is_ready()
    other = second.send([torch.full((3,), 2.0)])
    assert pending.is_ready()
    assert other.is_ready()
    assert pending.take().tolist() == [3.0, 3.0, 3.0]
    for link in links:
        link.close()


def test_messages_that_do_not_fit_are_not_for_shared_memory() -> None:
    half = local_link.SHARED // 2
    assert SharedMemorySums.has_room([half // 2, half // 2])
    assert not SharedMemorySums.has_room([half // 2, half // 2, 1])


@pytest.mark.parametrize("rank_off", [0, 1])
def test_there_is_no_link_where_one_rank_is_elsewhere(
    rank_off: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = open_files()
    monkeypatch.setattr(local_link, "_place", lambda size: [threading.current_thread().name])
    caplog.set_level("INFO")
    assert on_ranks(2, lambda rank, exchange: connect(rank, 2, exchange)) == [None, None]
    assert "gloo alone: they are processes of several machines" in caplog.text
    assert open_files() <= before

    monkeypatch.undo()
    usual = local_link._Pipes.connect

    def refused(self: Any, pids: Any, offers: Any) -> None:
        if self._rank == rank_off:
            raise PermissionError("not yours")
        usual(self, pids, offers)

    monkeypatch.setattr(local_link._Pipes, "connect", refused)
    assert on_ranks(2, lambda rank, exchange: connect(rank, 2, exchange)) == [None, None]
    assert open_files() <= before


def test_it_can_be_turned_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setenv(local_link.SWITCH, "off")
    assert on_ranks(2, lambda rank, exchange: connect(rank, 2, exchange)) == [None, None]
    assert "VOICEHUB_LOCAL_LINK=off" in caplog.text
    with pytest.raises(OSError, match="16 of them at most"):
        monkeypatch.delenv(local_link.SWITCH)
        local_link._place(17)


@pytest.mark.parametrize("place", [0, 1])
def test_what_one_rank_cannot_make_none_keeps(
    place: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever is raised there; the pipes of that rank were made before."""
    before = open_files()
    usual = local_link._Pipes.open
    calls = [0, 0]

    def refused(self: Any) -> None:
        usual(self)
        calls[self._rank] += 1
        if self._rank == place and calls[place] == 2:
            raise ValueError("no more of them")

    monkeypatch.setattr(local_link._Pipes, "open", refused)
    caplog.set_level("INFO")
    assert on_ranks(2, lambda rank, exchange: connect(rank, 2, exchange)) == [None, None]
    assert "gloo alone: ValueError: no more of them" in caplog.text
    assert open_files() <= before


def test_what_cannot_be_opened_for_whatever_reason_ends_in_gloo_for_all(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that is too small cannot be mapped: no OSError, and the others wait for a word."""
    before = open_files()

    def mapped(path: str) -> torch.Tensor:
        raise ValueError("mmap length is greater than file size")

    monkeypatch.setattr(local_link, "_mapped", mapped)
    assert on_ranks(2, lambda rank, exchange: connect(rank, 2, exchange)) == [None, None]
    assert "gloo alone: ValueError: mmap length" in caplog.text
    assert open_files() <= before


def test_memory_of_another_process_is_not_taken_for_that_of_a_rank(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As where a machine was copied while it ran: its name and process numbers are the same."""
    before = open_files()
    usual = local_link._Own.offer

    def offer(self: Any) -> list[Any]:
        told = usual(self)
        return [*told[:4], "00" * 16] if self._rank == 1 else told

    monkeypatch.setattr(local_link._Own, "offer", offer)
    assert on_ranks(2, lambda rank, exchange: connect(rank, 2, exchange)) == [None, None]
    assert "in /proc is not rank 1" in caplog.text
    assert open_files() <= before


def test_a_python_without_memory_files_asks_the_c_library(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr("os.memfd_create")
    for link in linked(2):
        link.close()

    monkeypatch.setattr("ctypes.CDLL", lambda name, use_errno: object())
    caplog.set_level("INFO")
    assert on_ranks(2, lambda rank, exchange: connect(rank, 2, exchange)) == [None, None]
    assert "gloo alone: neither Python nor the C library" in caplog.text


def test_a_limit_may_be_longer_than_a_poll() -> None:
    first, second = linked(2)
    number = first.send(b"", 0)
    second.send(b"here", 4)
    assert first.receive(number, 1e9) == {1: (4, b"here")}
    first.close()
    second.close()


def test_one_rank_alone_has_its_own_sums() -> None:
    (link,) = linked(1)
    assert link.receive(link.send(b"row", 3), LIMIT) == {}
    sums = SharedMemorySums(link, LIMIT)
    totals = [sums.send([torch.full((3,), float(n))]).take() for n in range(3)]
    assert [total.tolist() for total in totals] == [[n] * 3 for n in (0.0, 1.0, 2.0)]
    link.close()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_and_parts_that_are_not_contiguous(dtype: torch.dtype) -> None:
    links = linked(2)
    table = torch.arange(6, dtype=dtype).reshape(2, 3)
    first, second = (SharedMemorySums(link, LIMIT) for link in links)
    one = first.send([table.t().reshape(-1), table[:, 1]])
    two = second.send([table.t().reshape(-1), table[:, 1]])
    for total in (one.take(), two.take()):
        assert total.dtype is dtype
        assert total.tolist() == [0, 6, 2, 8, 4, 10, 2, 8]
    for link in links:
        link.close()


def test_nothing_is_left_in_a_file_system() -> None:
    links = linked(2)
    maps = Path("/proc/self/maps").read_text().splitlines()
    files = {line.split(maxsplit=5)[5] for line in maps if "voicehub-gradients" in line}
    assert files and all(name.endswith("(deleted)") for name in files)
    for link in links:
        link.close()
