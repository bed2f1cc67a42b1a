"""What one rank learns of the others' failures, and how all of them come to an end.

The first rank that fails writes type and text of its error to the rendezvous store, where the
others find it. A thread in every process writes a sign of life every other second, watches that of
the next rank, and looks for a recorded failure. The sign says what the rank is at where the others
may have to wait for it, such as a callback. Where the main thread does not end by itself (it
waits inside a collective call for a process that is gone), the thread ends the process.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from dataclasses import asdict, dataclass
from typing import Any

from voicehub.errors import VoiceHubError
from voicehub.strategies.timed_store import TimedStore

_FAILURE = "voicehub/failure"
_DONE = "done"
_EXIT_CODE = 1


@dataclass(frozen=True)
class WatchLimits:
    """Times in seconds.

    Attributes:
        beat: between two signs of life.
        silence: without one, after which a rank counts as lost.
        grace: for the main thread to end by itself once a failure is known.
    """

    beat: float = 2.0
    silence: float = 20.0
    grace: float = 5.0


@dataclass(frozen=True)
class RankFailure:
    """The first failure of a run: which rank, the type of its error and its text."""

    rank: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"Rank {self.rank} failed first, with {self.kind}: {self.text}"


class RankFailedError(VoiceHubError):
    """Another rank failed, and this one ends with it; ``failure`` is the first cause."""

    is_of_another_rank = True

    def __init__(self, failure: RankFailure) -> None:
        super().__init__(str(failure))
        self.failure = failure


class FailureWatch:
    """Records and finds failures; its thread runs from ``start`` to ``stop``.

    Args:
        store: the rendezvous store, for the calling thread.
        rank: this rank.
        world_size: how many there are.
        limits: times.

    Attributes:
        work: what this rank is at alone, for the others to know; None where it is nothing.
    """

    def __init__(
        self, store: Any, rank: int, world_size: int, limits: WatchLimits | None = None
    ) -> None:
        self.rank = rank
        self.world_size = world_size
        self.limits = limits or WatchLimits()
        self.work: str | None = None
        self._store = TimedStore(store, lambda: self.limits.silence)
        # A store object serves one call at a time, and the main thread may block in one.
        self._own_store = store.clone() if hasattr(store, "clone") else store
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="voicehub-ranks", daemon=True)

    def start(self) -> None:
        """Begin to watch and to be watched."""
        self._own_store.set(self._key(self.rank), "0")
        self._thread.start()

    def stop(self) -> None:
        """This rank has done its work: the others need no sign of life any more."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=self.limits.beat + 1.0)
        try:
            self._store.set(self._key(self.rank), _DONE)
        except Exception:  # the store may have ended with its process
            return

    def wait_for_others(self, limit: float) -> None:
        """Wait until the other ranks have stopped to watch: they need the store of this one.

        Not longer than ``limit`` seconds, nor for one that has failed or gives no sign of life.
        """
        until = time.monotonic() + limit
        others = [rank for rank in range(self.world_size) if rank != self.rank]
        seen: dict[int, tuple[bytes, float]] = {}
        try:
            while others and time.monotonic() < until and self._look(self._store) is None:
                for rank in list(others):
                    beat, now = self._store.get(self._key(rank)), time.monotonic()
                    last, at = seen.get(rank, (b"", now))
                    seen[rank] = (beat, now if beat != last else at)
                    if beat == _DONE.encode() or now - seen[rank][1] > self.limits.silence:
                        others.remove(rank)
                time.sleep(0.05)
        except Exception:  # nobody is left to wait for
            return

    def report(self, error: BaseException) -> None:
        """Record a failure of this rank, unless another was first."""
        if getattr(error, "is_of_another_rank", False):
            return
        kind = type(error).__name__
        text = " ".join(str(error).split()) or kind
        self.record(RankFailure(self.rank, kind, text))

    def record(self, failure: RankFailure) -> None:
        """Record a failure, unless there is one already."""
        try:
            self._store.compare_set(_FAILURE, "", json.dumps(asdict(failure)))
        except Exception:  # without a store there is nobody to tell
            return

    def failure(self, wait: float = 0.0) -> RankFailure | None:
        """Return what was recorded first; waits for it for some seconds if asked to."""
        until = time.monotonic() + wait
        while True:
            found = self._look(self._store)
            if found is not None or time.monotonic() >= until:
                return found
            time.sleep(0.1)

    def others_work(self, wait: float) -> tuple[int, str] | None:
        """Another rank that is at something alone, and at what; waits some seconds for one."""
        until = time.monotonic() + wait
        others = [rank for rank in range(self.world_size) if rank != self.rank]
        try:
            while True:
                for rank in others:
                    _, _, work = self._store.get(self._key(rank)).decode().partition(" ")
                    if work:
                        return rank, work
                if time.monotonic() >= until or self._look(self._store) is not None:
                    return None
                time.sleep(0.1)
        except Exception:  # without a store nobody is known to work
            return None

    def _look(self, store: Any) -> RankFailure | None:
        try:
            if not store.check([_FAILURE]):
                return None
            return RankFailure(**json.loads(store.get(_FAILURE)))
        except Exception:  # the store is gone: the thread below notices
            return None

    # The thread.

    def _run(self) -> None:
        neighbour = (self.rank + 1) % self.world_size
        count, seen, seen_at = 0, b"", time.monotonic()
        last_turn = time.monotonic()
        while not self._stop.wait(self.limits.beat):
            limits = self.limits
            count += 1
            try:
                self._own_store.set(self._key(self.rank), f"{count} {self.work or ''}".rstrip())
                beat = self._own_store.get(self._key(neighbour))
            except Exception as error:
                self._end(f"the store of the launcher or of rank 0 is gone ({error})")
                return
            now = time.monotonic()
            late = now - last_turn > limits.beat + limits.silence / 2  # this machine slept
            last_turn = now
            if beat != seen or late or beat == _DONE.encode():
                seen, seen_at = beat, now
            elif now - seen_at > limits.silence:
                text = f"no sign of life for {limits.silence:.0f} s: stopped, or cut off"
                self.record(RankFailure(neighbour, "SilentRank", text))
            found = self._look(self._own_store)
            if found is not None:
                # Who failed may have workers to end and a checkpoint on its way to the disk.
                self._end(str(found), patience=4 if found.rank == self.rank else 1)
                return

    def _end(self, cause: str, patience: int = 1) -> None:
        """Give the main thread time to end by itself, then end the process."""
        if self._stop.wait(patience * self.limits.grace):
            return
        print(f"Error: rank {self.rank} ends: {cause}", file=sys.stderr, flush=True)
        os._exit(_EXIT_CODE)

    def _key(self, rank: int) -> str:
        return f"voicehub/beat/{rank}"
