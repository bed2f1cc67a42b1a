"""Kills processes that write checkpoints, again and again, and checks what they leave.

Run by ``test_checkpoint_kill.py`` in a process of its own, which forks the writers:

    python kill_writers.py RUN_DIRECTORY SEED ROUNDS

Each writer continues the run from the newest checkpoint, as a restarted training would: it removes
litter, verifies what it resumes from, and saves every step with rotation, until it is killed. Half
of the writers are killed at a random system operation, in the middle of a file if it is a write;
the other half by the kernel's timer at a random fraction of the time that two saves take.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sys
import time
from pathlib import Path

import torch

from voicehub.checkpoints import writer
from voicehub.checkpoints.layout import latest_checkpoint, list_checkpoints
from voicehub.checkpoints.litter import remove_litter
from voicehub.checkpoints.reader import open_checkpoint
from voicehub.checkpoints.rotation import rotate
from voicehub.checkpoints.snapshot import CheckpointPayload

FIELDS = {"run_id": "kill"}
LIMIT = 2
OPERATIONS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.listdir", "os.scandir"}


def payload(step: int) -> CheckpointPayload:
    """The state of the run at a step: a function of the step alone."""
    generator = torch.Generator().manual_seed(step)
    weights = torch.randn(60_000, generator=generator)
    return CheckpointPayload(
        {"weights": weights},
        {"moment": weights * 2},
        rng_state={"cpu": generator.get_state()},
        runtime={"step": step},
        documents={"trainer_state.json": {"global_step": step}},
        extra_files={"processor": lambda path: _directory(path, step)},
    )


def verify(path: Path) -> int:
    """Check that a checkpoint holds exactly the state of its step."""
    checkpoint = open_checkpoint(path)
    step = checkpoint.step
    expected = payload(step)
    assert torch.equal(checkpoint.tensors()["weights"], expected.tensors["weights"])
    assert torch.equal(checkpoint.optimizer()["moment"], expected.optimizer["moment"])
    assert checkpoint.runtime() == {"step": step}
    assert (path / "processor" / "step.txt").read_text() == str(step)
    return step


def write(run_dir: Path, saves: int | None) -> None:
    """Continue the run for a number of saves, or until killed."""
    remove_litter(run_dir, FIELDS["run_id"])
    latest = latest_checkpoint(run_dir)
    step = 0 if latest is None else verify(latest)
    first = max(step - 1, 0)  # as if resumed from the one before: the newest step is saved again
    for number in range(first + 1, sys.maxsize if saves is None else first + 1 + saves):
        path = writer.write_checkpoint(run_dir, number, payload(number), FIELDS)
        rotate(run_dir, FIELDS["run_id"], LIMIT, [path])


def kill_at_operation(number: int, part: float) -> None:
    """Arrange for this process to be killed at its ``number``-th operation on the file system."""
    count = 0

    def strike(amount: int = 1) -> bool:
        nonlocal count
        count += amount
        return count >= number

    def on_event(event: str, _: tuple[object, ...]) -> None:
        if event in OPERATIONS and strike():
            os.kill(os.getpid(), signal.SIGKILL)

    def fsync(descriptor: int) -> None:
        if strike():
            os.kill(os.getpid(), signal.SIGKILL)
        real_fsync(descriptor)

    def write_part(file: writer.HashingFile, data: bytes) -> int:
        if strike():
            real_write(file, bytes(data)[: int(part * len(data))])
            os.kill(os.getpid(), signal.SIGKILL)
        return real_write(file, data)

    real_fsync, real_write = os.fsync, writer.HashingFile.write
    os.fsync = fsync
    writer.HashingFile.write = write_part
    sys.addaudithook(on_event)


def main(run_dir: Path, seed: int, rounds: int) -> None:
    """Kill writers and print what happened as JSON."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    torch.set_num_threads(1)  # a thread pool does not survive the fork: the child would hang
    draw = random.Random(seed)
    begun = time.perf_counter()
    write(run_dir, 2)
    duration = time.perf_counter() - begun
    newest, litter, progress = 0, 0, 0
    for turn in range(rounds):
        pid = os.fork()
        if pid == 0:
            if turn % 2:
                signal.setitimer(signal.ITIMER_REAL, max(1e-4, draw.random() * 2 * duration))
            else:
                kill_at_operation(draw.randint(1, 600), draw.random())
            write(run_dir, None)
            os._exit(1)
        draw.random(), draw.randint(1, 600), draw.random()  # the parent's draws move on as well
        _, status = os.waitpid(pid, 0)
        expected = signal.SIGALRM if turn % 2 else signal.SIGKILL
        assert os.WIFSIGNALED(status), f"turn {turn}: the writer ended by itself, {status}"
        assert os.WTERMSIG(status) == expected, f"turn {turn}: ended by {os.WTERMSIG(status)}"
        steps = [verify(path) for path in list_checkpoints(run_dir)]
        assert steps, f"turn {turn}: no complete checkpoint is left"
        assert steps[-1] >= newest - 1, f"turn {turn}: step {newest} was lost, {steps} are left"
        assert len(steps) <= LIMIT + 1, f"turn {turn}: {steps}"
        progress += steps[-1] > newest
        newest = max(newest, steps[-1])
        litter += len(remove_litter(run_dir, FIELDS["run_id"]))
        names = sorted(path.name for path in run_dir.iterdir())
        assert not any(name.startswith(".") for name in names), f"turn {turn}: {names}"
    print(json.dumps({"newest": newest, "litter": litter, "progress": progress}))


def _directory(path: Path, step: int) -> None:
    path.mkdir()
    (path / "step.txt").write_text(str(step))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
