"""Every damage of a checkpoint in shards is found, by name, before a run takes anything from it."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rank_tasks import resume_damaged, train

from voicehub.checkpoints.reader import open_checkpoint
from voicehub.cli.app import run as voicehub
from voicehub.errors import CheckpointCorruptError
from voicehub.testing.ranks import pool_of, run_on_ranks

RUN: dict[str, Any] = {
    "recipe": "gan",
    "strategy": "fsdp",
    "per_device_train_batch_size": 2,
    "max_steps": 2,
    "ema_decay": 0.9,
    "optim": "adamw",
    "save_strategy": "steps",
    "save_steps": 2,
}
SHARDS = [
    f"{stem}-0000{number}-of-00002.safetensors"
    for stem in ("model_state", "optimizer")
    for number in (1, 2)
]
INDEXES = ["model_state.safetensors.index.json", "optimizer.safetensors.index.json"]


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


DAMAGES: dict[str, Callable[[Path], None]] = {"flip": flip, "cut": cut, "delete": Path.unlink}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sharded")
    run_on_ranks(2, train, directory, [RUN])
    return directory / "0" / "checkpoint-2"


@pytest.fixture
def checkpoint(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / saved.name))


def test_these_are_its_files(saved: Path) -> None:
    files = {path.name for path in saved.iterdir()}
    assert {*SHARDS, *INDEXES} <= files
    assert not files & {"model_state.safetensors", "frozen_state.safetensors"}
    assert open_checkpoint(saved).step == 2


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_named(damage: str, saved: Path, tmp_path: Path) -> None:
    for name in sorted(open_checkpoint(saved).manifest["required_files"]):
        copy = Path(shutil.copytree(saved, tmp_path / name / saved.name))
        DAMAGES[damage](copy / name)
        with pytest.raises(CheckpointCorruptError) as found:
            open_checkpoint(copy)
        assert name in str(found.value), f"{damage} of {name}"


def test_shards_that_changed_places_are_found(saved: Path, tmp_path: Path) -> None:
    for first, second in itertools.combinations([*SHARDS, *INDEXES], 2):
        copy = Path(shutil.copytree(saved, tmp_path / (first + second) / saved.name))
        (copy / first).rename(copy / "aside")
        (copy / second).rename(copy / first)
        (copy / "aside").rename(copy / second)
        with pytest.raises(CheckpointCorruptError) as found:
            open_checkpoint(copy)
        assert first in str(found.value) or second in str(found.value)


def test_no_rank_takes_anything_from_a_damaged_one(checkpoint: Path) -> None:
    flip(checkpoint / SHARDS[3])
    outcomes = pool_of(2).outcomes(resume_damaged, checkpoint.parent, 2, RUN)
    for kind, text, untouched in outcomes:
        assert kind in ("CheckpointCorruptError", "RankFailedError")
        assert SHARDS[3] in text
        assert untouched


def test_the_commands_know_shards(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert voicehub(["checkpoint", "show", str(checkpoint)]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in (*SHARDS, *INDEXES)) and "fsdp" in shown
    assert voicehub(["checkpoint", "verify", str(checkpoint)]) == 0
    cut(checkpoint / SHARDS[1])
    assert voicehub(["checkpoint", "verify", str(checkpoint)]) == 1
    assert SHARDS[1] in "".join(capsys.readouterr())
