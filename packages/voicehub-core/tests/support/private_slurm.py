"""A Slurm of our own on the loopback interface: a controller and two nodes, in one folder."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel", "sinfo")
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/usr/local/sbin"
_PATIENCE = 60.0
# Nodes have names that are addresses, so that what runs on one finds another by its name.
NODES = ("127.0.0.1", "127.0.0.2")
_GPUS = ("H100", "A100")


def missing_programs() -> list[str]:
    """Those of Slurm that are not installed here."""
    return [name for name in PROGRAMS if shutil.which(name, path=_PATH) is None]


@dataclass(frozen=True)
class Slurm:
    """A controller that answers.

    Attributes:
        folder: everything of it lies here.
    """

    folder: Path

    def run(
        self, *words: str, cwd: Path, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run one of Slurm's programs as a user would."""
        return subprocess.run(
            words,
            cwd=cwd,
            env={**os.environ, **(environment or {}), **self.environment},
            capture_output=True,
            text=True,
            check=False,
        )

    def submit(self, file: Path, *, cwd: Path, environment: Mapping[str, str]) -> str:
        """Queue a file and return the number of the job."""
        done = self.run("sbatch", "--parsable", str(file), cwd=cwd, environment=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def end_of(self, job: str) -> str:
        """Wait for a job and return the state in which it ended, such as ``COMPLETED``."""
        state = ""

        def ended() -> bool:
            nonlocal state
            shown = self.run("scontrol", "--oneliner", "show", "job", job, cwd=self.folder).stdout
            state = shown.partition(" JobState=")[2].partition(" ")[0]
            return state not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")

        wait_for(ended, f"the end of job {job}")
        return state

    @property
    def environment(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": _PATH}


@contextlib.contextmanager
def serve(folder: Path) -> Iterator[Slurm]:
    """Start it, and end it with all that it started.

    Raises:
        RuntimeError: it does not come up; holds what its programs said.
    """
    slurm = Slurm(folder)
    _configure(folder)
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        _start_all(slurm, daemons)
        yield slurm
    finally:
        _end(slurm, daemons)


def _start_all(slurm: Slurm, daemons: list[subprocess.Popen[bytes]]) -> None:
    folder = slurm.folder
    try:
        munge = ["munged", "--foreground", "--force", f"--key-file={folder}/munge.key"]
        places = {"socket": "munge.socket", "pid-file": "munge.pid", "log-file": "munge.log"}
        places |= {"seed-file": "munge.seed"}
        munge += [f"--{option}={folder}/{name}" for option, name in places.items()]
        daemons.append(_start(slurm, "munged", munge))
        wait_for((folder / "munge.socket").exists, "munged", needed=daemons)
        daemons.append(_start(slurm, "slurmctld", ["slurmctld", "-D"]))
        daemons += [_start(slurm, f"slurmd-{n}", ["slurmd", "-D", "-N", n]) for n in NODES]
        wait_for(lambda: _idle(slurm) == len(NODES), "Slurm's nodes", needed=daemons)
    except RuntimeError as error:
        said = [f"{path.name}: {path.read_text()[-1500:]}" for path in folder.glob("*.out")]
        raise RuntimeError("\n".join([str(error), *said])) from None


def _configure(folder: Path) -> None:
    for name in ("state", "spool", "gpus"):
        (folder / name).mkdir()
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o600)
    gres = ""
    for kind in _GPUS:
        for number in range(8):  # a device that nothing opens
            (folder / "gpus" / f"{kind}-{number}").touch()
        gres += f"Name=gpu Type={kind} File={folder}/gpus/{kind}-[0-7]\n"
    (folder / "gres.conf").write_text(gres)
    ports = _free_ports(1 + len(NODES))
    user, host = pwd.getpwuid(os.geteuid()).pw_name, socket.gethostname().partition(".")[0]
    settings = {
        "ClusterName": "private",
        "SlurmctldHost": f"{host}(127.0.0.1)",
        "SlurmctldPort": ports[0],
        "SlurmUser": user,
        "SlurmdUser": user,
        "AuthType": "auth/munge",
        "CredType": "cred/munge",
        "AuthInfo": f"socket={folder}/munge.socket",
        "StateSaveLocation": folder / "state",
        "SlurmdSpoolDir": folder / "spool" / "%n",
        "SlurmctldPidFile": folder / "slurmctld.pid",
        "SlurmdPidFile": folder / "slurmd-%n.pid",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "JobAcctGatherType": "jobacct_gather/none",
        "SwitchType": "switch/none",
        "MpiDefault": "none",
        "ReturnToService": 2,
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core_Memory",
        "GresTypes": "gpu",
        "SchedulerType": "sched/builtin",
        # The nodes have what is written here, not what this machine has.
        "SlurmdParameters": "config_overrides",
        "KillWait": 60,
    }
    lines = [f"{key}={value}" for key, value in settings.items()]
    lines += [
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=64 "
        f"RealMemory=512000 Gres={','.join(f'gpu:{kind}:8' for kind in _GPUS)}"
        for name, port in zip(NODES, ports[1:], strict=True)
    ]
    lines += ["PartitionName=main Nodes=ALL Default=YES", "PartitionName=short Nodes=ALL"]
    (folder / "slurm.conf").write_text("".join(f"{line}\n" for line in lines))


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def _start(slurm: Slurm, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
    with (slurm.folder / f"{name}.out").open("wb") as said:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            env={**os.environ, **slurm.environment},
            cwd=slurm.folder,
        )


def _idle(slurm: Slurm) -> int:
    """Nodes that wait for work."""
    asked = slurm.run(
        "sinfo", "--noheader", "--Node", "--partition=main", "--format=%T", cwd=slurm.folder
    )
    return asked.stdout.split().count("idle")


def wait_for(
    ready: Callable[[], bool], what: str, *, needed: Sequence[subprocess.Popen[bytes]] = ()
) -> None:
    """Ask again and again, as long as every process that is needed for it runs.

    Raises:
        RuntimeError: it takes a minute or more, or one of them has ended.
    """
    until = time.monotonic() + _PATIENCE
    while not ready():
        if time.monotonic() > until or any(process.poll() is not None for process in needed):
            raise RuntimeError(f"{what} did not come.")
        time.sleep(0.02)


def _end(slurm: Slurm, daemons: Sequence[subprocess.Popen[bytes]]) -> None:
    for daemon in reversed(daemons):
        daemon.terminate()
    for daemon in daemons:
        daemon.wait()
    # Processes of jobs do not end with the daemons; all that is ours has our folder.
    mine = f"SLURM_CONF={slurm.environment['SLURM_CONF']}".encode()
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mine in (path / "environ").read_bytes().split(b"\0"):
                os.kill(int(path.name), signal.SIGKILL)
