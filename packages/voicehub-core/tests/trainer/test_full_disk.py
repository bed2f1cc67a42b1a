"""The disk refuses a checkpoint written in the background: the run says why, and resumes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from voicehub.checkpoints.layout import list_checkpoints
from voicehub.checkpoints.reader import open_checkpoint
from voicehub.errors import CheckpointCorruptError, CheckpointError
from voicehub.trainer.callbacks import TrainerCallback


def big_model(toy: Any) -> torch.nn.Module:
    """About 0.6 MB with the state of AdamW."""
    model = toy.FrameRegressor()
    model.extra = torch.nn.Parameter(torch.zeros(50_000))
    return model  # type: ignore[no-any-return]


def train(toy: Any, run_dir: Path, *callbacks: TrainerCallback, resume: bool = False,
          **settings: Any) -> Any:  # fmt: skip
    torch.manual_seed(0)
    model = big_model(toy)
    # A parameter without a gradient is saved all the same, with its optimizer state to come.
    model.register_forward_hook(
        lambda module, _, output: {**output, "loss": output["loss"] + module.extra.sum() * 1e-9}
    )
    return toy.run(
        model=model,
        trainer={"callbacks": list(callbacks)},
        output_dir=str(run_dir),
        max_steps=8,
        save_strategy="steps",
        save_steps=1,
        resume=resume,
        **settings,
    )


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB of its own."""
    point = tmp_path / "disk"
    point.mkdir()
    mount = shutil.which("mount")
    if mount is None or os.name != "posix" or os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    options = ["-t", "tmpfs", "-o", "size=4m", "tmpfs", str(point)]
    done = subprocess.run([mount, *options], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"mounting a small file system failed: {done.stderr.strip()}")
    yield point
    subprocess.run(["umount", str(point)], check=True)


def test_a_disk_that_fills_up_ends_the_run_with_what_was_needed(toy: Any, small_disk: Path) -> None:
    run_dir = small_disk / "run"
    with pytest.raises(CheckpointError, match=r"No space left.* needs about 1\.\d MB; .*MB are"):
        train(toy, run_dir)
    kept = list_checkpoints(run_dir)
    assert kept and open_checkpoint(kept[-1]).step == len(kept)
    assert not [path.name for path in run_dir.iterdir() if path.name.startswith(".")]
    for path in kept[:-1]:  # the advice of the message
        shutil.rmtree(path)
    assert train(toy, run_dir, resume=True, save_total_limit=1).state.global_step == 8
    assert len(list_checkpoints(run_dir)) == 1


class LimitFileSize(TrainerCallback):
    """From a step on no file may grow beyond 100 kB."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_begin(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        if state.global_step == self.step:
            limit_file_size(100_000)


def limit_file_size(size: int | None) -> None:
    import resource

    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard if size is None else size, hard))


@pytest.mark.skipif(sys.platform == "win32", reason="file size limits are a POSIX feature")
def test_a_file_that_may_not_grow_ends_the_run(toy: Any) -> None:
    run_dir = toy.path / "run"
    try:
        with pytest.raises(CheckpointError, match=r"checkpoint-[23] could not be.*File too large"):
            train(toy, run_dir, LimitFileSize(2))
    finally:
        limit_file_size(None)
    # The second was on its way to the disk when the limit came.
    assert [path.name for path in list_checkpoints(run_dir)][:1] == ["checkpoint-1"]
    whole = train(toy, toy.path / "whole")
    resumed = train(toy, run_dir, resume=True)
    for name, value in whole.adapter.state_dict().items():
        assert torch.equal(value, resumed.adapter.state_dict()[name])


@pytest.mark.parametrize("name", ["optimizer.pt", "training_runtime.pt", "rng_state.pth"])
def test_damage_is_found_before_anything_changes(toy: Any, name: str) -> None:
    """Refused with weights, random state and run directory as they were."""
    train(toy, toy.path / "run")
    damaged = toy.path / "run" / "checkpoint-8" / name
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    files = sorted(path for path in (toy.path / "run").rglob("*"))

    from voicehub.trainer.trainer import Trainer

    torch.manual_seed(1)
    trainer = Trainer(
        model=big_model(toy),
        args=toy.arguments(output_dir=str(toy.path / "run"), max_steps=8, save_steps=1),
        data_collator=toy.collate,
        train_dataset=toy.Frames(11),
    )
    before = toy.weights(trainer.model)
    with pytest.raises(CheckpointCorruptError, match=name.replace(".", r"\.")):
        trainer.train(resume_from_checkpoint=True)
    after = toy.weights(trainer.model)
    assert all(torch.equal(after[key], value) for key, value in before.items())
    assert trainer.state.global_step == 0
    assert sorted(path for path in (toy.path / "run").rglob("*")) == files
