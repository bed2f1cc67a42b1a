"""Work on several processes: all of it is done, and one that is killed is named, not waited for."""

from __future__ import annotations

import multiprocessing
import os
import signal

import pytest
from shared_work_cases import Numbers

from voicehub.errors import ConfigurationError, DataError
from voicehub_data import shared_work
from voicehub_data.shared_work import WorkerLostError, run_shared, share_out

UNITS = range(7)


def test_units_are_shared_out_evenly_and_once():
    assert share_out(UNITS, 3) == [[0, 3, 6], [1, 4], [2, 5]]
    assert share_out([4, 6], 8) == [[4], [6]]
    assert share_out([], 2) == []
    with pytest.raises(ConfigurationError, match="processes must be >= 1, got 0"):
        share_out(UNITS, 0)


def test_each_process_does_its_share_and_tells(tmp_path):
    told = []
    run_shared(Numbers(tmp_path), UNITS, 2, told.append)
    written = {int(path.name): path.read_text().split() for path in tmp_path.iterdir()}
    workers = [{written[unit][0] for unit in share} for share in share_out(UNITS, 2)]
    assert [len(worker) for worker in workers] == [1, 1] and workers[0] != workers[1]
    assert str(os.getpid()) not in workers[0] | workers[1]
    assert sorted(written) == list(UNITS) and told == [10] * 7
    threads = str(max(1, (os.cpu_count() or 1) // 2))
    assert {tuple(rest) for _, *rest in written.values()} == {(threads, "False")}
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])  # that is its parent's


def test_one_that_was_stopped_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(shared_work, "_GRACE", 0.0)
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=signal.pause, daemon=True)
    process.start()
    theirs.close()
    os.kill(process.pid, signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)  # until it stands still, SIGTERM would end it
    shared_work._Worker(process, ours).end()
    assert process.exitcode == -signal.SIGKILL


@pytest.mark.parametrize(
    ("how", "error", "said"),
    [
        (
            "die",
            WorkerLostError,
            r"ended by SIGKILL \(.*memory.*\) at 5\.wav\. What was done .*kept",
        ),
        ("exit", WorkerLostError, r"ended with exit code 3 at 5\.wav\."),
        ("raise", DataError, r"5\.wav is empty\."),
        ("odd", DataError, "OddError: this and that"),
    ],
)
def test_the_first_that_fails_ends_all_and_is_named(tmp_path, how, error, said):
    others = set(multiprocessing.active_children())  # ranks that other tests keep
    with pytest.raises(error, match=said):
        run_shared(Numbers(tmp_path, 5, how), UNITS, 2, lambda rows: None)
    assert set(multiprocessing.active_children()) <= others
    assert {"1", "3"} <= {path.name for path in tmp_path.iterdir()}  # what was done stays
    assert not (tmp_path / "5").exists()


def test_one_share_stays_in_this_process(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    told = []
    run_shared(Numbers(tmp_path), UNITS, 1, told.append)
    run_shared(Numbers(tmp_path), [9], 8, told.append)
    assert {path.read_text().split()[0] for path in tmp_path.iterdir()} == {str(os.getpid())}
    assert told == [10] * 8
    with pytest.raises(DataError, match="is empty"):
        run_shared(Numbers(tmp_path, 9, "raise"), [9], 1, told.append)
