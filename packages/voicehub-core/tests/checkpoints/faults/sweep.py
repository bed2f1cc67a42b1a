"""Lets every operation of a save fail in turn, below Python, and checks what is left.

    python sweep.py DIRECTORY --through trainer --call write --error ENOSPC [--every 7]

For k = 1, 2, ... the k-th operation of a kind strikes: it fails with ENOSPC (and so does every
later one that needs room), with EIO (once), or kills the process in the middle of it (KILL). It
ends with the first k that is never reached. After each strike it must hold that

* a process that lived saves again at once, where what it saves through allows that;
* the newest checkpoint offered verifies, loads, and holds the state of its step;
* the next start removes all litter, and its next save succeeds.

Each attempt is a fork of this process, which imports torch once. The program starts itself again
under LD_PRELOAD with the shim that it compiles. Prints JSON; exit code 77: it cannot run here.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
CANNOT = 77
KINDS = {"open": 1, "write": 2, "fsync": 4, "rename": 8, "mkdir": 16, "unlink": 32}
NEEDING_ROOM = KINDS["open"] | KINDS["write"] | KINDS["mkdir"]
ERRORS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "KILL": 0}
UNTOUCHED, FAILED, BROKEN = 0, 3, 4


def preload(arguments: list[str]) -> int:
    """Compile the shim and run this program under it."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        print("the shim needs Linux and a C compiler", file=sys.stderr)
        return CANNOT
    with tempfile.TemporaryDirectory(prefix="faults-") as scratch:
        shim = Path(scratch) / "shim.so"
        options = ["-shared", "-fPIC", "-O1", "-o", str(shim), str(HERE / "shim.c"), "-ldl"]
        subprocess.run([compiler, *options], check=True)
        environment = {
            **os.environ,
            "LD_PRELOAD": str(shim),
            "VOICEHUB_FAULT_DIR": str(Path(arguments[0]).resolve()),
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, str(HERE / "sweep.py"), *arguments]
        return subprocess.run(command, env=environment, check=False).returncode


class Shim:
    """The preloaded library: arms a strike in this process."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        self._library.fault_seen.restype = ctypes.c_long

    def arm(self, call: str, at: int, error: str) -> None:
        after = NEEDING_ROOM if error == "ENOSPC" else 0
        self._library.fault_arm(KINDS[call], ctypes.c_long(at), ERRORS[error], after)

    def disarm(self) -> bool:
        """Whether it struck; from now on nothing fails."""
        self._library.fault_disarm()
        return bool(self._library.fault_struck())


class Sweep:
    """One kind of operation, one kind of failure, at every place of a save."""

    def __init__(self, directory: Path, subject: Subject, call: str, error: str) -> None:
        self.directory = directory
        self.subject = subject
        self.call = call
        self.error = error
        self.shim = Shim()
        self.template = directory / "template"

    def run(self, every: int) -> dict[str, int]:
        # In this process: what torch imports at its first step is there for all attempts then.
        self.subject.prepare(self.template)
        struck = 0
        at = 1
        while self._strike(at):
            struck += 1
            at += every
        return {"struck": struck, "last": at - every}

    def _strike(self, at: int) -> bool:
        """Whether the ``at``-th operation exists; everything is checked after it struck."""
        run_dir = self.directory / f"{self.call}-{self.error}-{at}"
        shutil.copytree(self.template, run_dir)
        killed = self.error == "KILL"
        try:
            status = self._child(lambda: self._attempt(run_dir, at), {UNTOUCHED, FAILED}, killed)
            self._child(lambda: self._restart(run_dir), {UNTOUCHED})
        except BaseException:
            print(f"{self.call} {at}, {self.error}: left in {run_dir}", file=sys.stderr)
            raise
        shutil.rmtree(run_dir)
        return status != UNTOUCHED

    def _restart(self, run_dir: Path) -> None:
        self.subject.check(run_dir)
        self.subject.next_start(run_dir)

    def _attempt(self, run_dir: Path, at: int) -> int:
        self.shim.arm(self.call, at, self.error)
        try:
            self.subject.save(run_dir)
        except Exception as error:
            if not self.shim.disarm():
                raise
            self.subject.after_failure(run_dir, error)
            return FAILED
        # A failure that the save lived with (litter that could not be removed) struck as well.
        return FAILED if self.shim.disarm() else UNTOUCHED

    def _child(
        self, work: Callable[[], int | None], expected: set[int], killed: bool = False
    ) -> int:
        pid = os.fork()
        if pid == 0:
            code = BROKEN
            try:
                code = work() or UNTOUCHED
            except BaseException:
                traceback.print_exc()
            sys.stderr.flush()
            os._exit(code)
        _, status = os.waitpid(pid, 0)
        if killed and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            return FAILED
        if not os.WIFEXITED(status) or os.WEXITSTATUS(status) not in expected:
            raise AssertionError(f"a process ended with {status}")
        return os.WEXITSTATUS(status)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--through", choices=SUBJECTS, required=True)
    parser.add_argument("--call", choices=KINDS, nargs="+", default=list(KINDS))
    parser.add_argument("--error", choices=ERRORS, nargs="+", default=list(ERRORS))
    parser.add_argument("--every", type=int, default=1)
    options = parser.parse_args(arguments)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    results = {}
    for call in options.call:
        for error in options.error:
            directory = options.directory.resolve() / f"{options.through}-{call}-{error}"
            directory.mkdir(parents=True)
            subject = SUBJECTS[options.through]()
            results[f"{call} {error}"] = Sweep(directory, subject, call, error).run(options.every)
    print(json.dumps(results))
    return 0


if __name__ == "__main__":
    if "VOICEHUB_FAULT_DIR" not in os.environ:
        raise SystemExit(preload(sys.argv[1:]))
    from subjects import SUBJECTS, Subject

    raise SystemExit(main(sys.argv[1:]))
