"""Work beside the caller's: its result, its error, and an end without threads."""

from __future__ import annotations

import threading

import pytest

from voicehub.checkpoints.beside import Beside


def test_the_work_runs_meanwhile_and_gives_its_result():
    begun, go_on = threading.Event(), threading.Event()

    def work():
        begun.set()
        assert go_on.wait(timeout=600)
        return 3

    with Beside(work) as beside:
        assert begun.wait(timeout=600), "the work waits for the block"
        go_on.set()
    assert beside.result() == 3


def test_the_block_ends_after_the_work_even_when_it_fails():
    ended = []
    with pytest.raises(KeyError), Beside(lambda: ended.append(1)):
        raise KeyError
    assert ended == [1]


def test_an_error_of_the_work_is_raised_where_the_result_is_asked_for():
    def fail():
        raise OSError(28, "No space left on device")

    with Beside(fail) as beside:
        pass
    with pytest.raises(OSError, match="No space"):
        beside.result()


def test_without_threads_the_work_is_done_at_once(monkeypatch):
    def refuse(_):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with Beside(lambda: 5) as beside:
        assert beside.result() == 5
