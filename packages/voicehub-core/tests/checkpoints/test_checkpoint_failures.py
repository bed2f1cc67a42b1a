"""A failed save says why, leaves nothing behind, and harms nothing that was saved before."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest
import torch

from voicehub.checkpoints.layout import list_checkpoints
from voicehub.checkpoints.reader import open_checkpoint
from voicehub.checkpoints.snapshot import CheckpointPayload, snapshot
from voicehub.checkpoints.writer import CheckpointExistsError, commit, write_checkpoint
from voicehub.errors import CheckpointError

LIMITED = """
import resource, sys, torch
from pathlib import Path
from voicehub.checkpoints.snapshot import CheckpointPayload
from voicehub.checkpoints.writer import write_checkpoint
from voicehub.errors import CheckpointError

run_dir, part = Path(sys.argv[1]), sys.argv[2]
big = torch.zeros(100_000)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
small = torch.zeros(10)
write_checkpoint(run_dir, 1, CheckpointPayload({"w": small}), {"run_id": "r"})
parts = {
    "model": CheckpointPayload({"w": big}),
    "optimizer": CheckpointPayload({"w": small}, {"m": big}),
    "document": CheckpointPayload({"w": small}, documents={"d.json": "x" * 400_000}),
    "extra": CheckpointPayload(
        {"w": small}, extra_files={"f": lambda path: path.write_bytes(bytes(400_000))}
    ),
}
try:
    write_checkpoint(run_dir, 2, parts[part], {"run_id": "r"})
except CheckpointError as error:
    print(error)
"""


@pytest.mark.parametrize("part", ["model", "optimizer", "document", "extra"])
@pytest.mark.skipif(sys.platform == "win32", reason="file size limits are a POSIX feature")
def test_no_room_for_a_file_is_reported_and_cleaned_up(tmp_path, part):
    """The system itself refuses, in the middle of writing one of the files."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path), part],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "checkpoint-2 could not be written: File too large" in done.stdout
    assert "It needs about" in done.stdout
    assert "MB are free" in done.stdout
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint-1"]
    open_checkpoint(tmp_path / "checkpoint-1")


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 2 MiB of its own."""
    point = tmp_path / "disk"
    point.mkdir()
    mount = shutil.which("mount")
    if mount is None or os.name != "posix" or os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    options = ["-t", "tmpfs", "-o", "size=2m", "tmpfs", str(point)]
    done = subprocess.run([mount, *options], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"mounting a small file system failed: {done.stderr.strip()}")
    yield point
    subprocess.run(["umount", str(point)], check=True)


@pytest.mark.parametrize("part", ["model", "optimizer", "extra"])
@pytest.mark.parametrize("checked_first", [True, False])
def test_a_full_disk_keeps_the_last_good_checkpoint(
    small_disk, fields, monkeypatch, part, checked_first
):
    small, big = torch.ones(10), torch.ones(1_000_000)
    good = write_checkpoint(small_disk, 1, CheckpointPayload({"w": small}), fields)
    payload = {
        "model": CheckpointPayload({"w": big}),
        "optimizer": CheckpointPayload({"w": small}, {"m": big}),
        "extra": CheckpointPayload(
            {"w": small}, extra_files={"f": lambda path: path.write_bytes(bytes(4_000_000))}
        ),
    }[part]
    if not checked_first:  # another process may take the space after it was looked at
        monkeypatch.setattr("voicehub.checkpoints.writer._check_space", lambda *_: None)
    with pytest.raises(CheckpointError, match=r"No space left.* needs about .*MB are free"):
        write_checkpoint(small_disk, 2, payload, fields)
    assert [p.name for p in small_disk.iterdir()] == ["checkpoint-1"]
    assert open_checkpoint(good).tensors()["w"].tolist() == small.tolist()
    write_checkpoint(small_disk, 3, CheckpointPayload({"w": small}), fields)


def test_space_is_looked_at_before_anything_is_written(tmp_path, make_payload, fields, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1, 1, 500_000))
    monkeypatch.setattr(Path, "rename", lambda *_: pytest.fail("something was written"))
    with pytest.raises(CheckpointError, match=r"needs about 1\.1 MB; 0\.5 MB are free"):
        write_checkpoint(tmp_path, 1, make_payload(), fields)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.EDQUOT])
@pytest.mark.parametrize("call", ["fsync", "mkdir", "rename"])
def test_other_failures_of_the_file_system_are_explained(
    tmp_path, make_payload, fields, monkeypatch, number, call
):
    good = write_checkpoint(tmp_path, 1, make_payload(1), fields)

    def fail(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(
        *{"fsync": (os, "fsync"), "mkdir": (Path, "mkdir"), "rename": (Path, "rename")}[call], fail
    )
    with pytest.raises(CheckpointError, match=os.strerror(number)):
        write_checkpoint(tmp_path, 2, make_payload(2), fields)
    monkeypatch.undo()
    assert list_checkpoints(tmp_path) == [good]
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint-1"]


def test_an_output_dir_that_cannot_hold_files_is_explained(tmp_path, make_payload, fields):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"file/checkpoint-1 could not be written"):
        write_checkpoint(tmp_path / "file", 1, make_payload(), fields)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_an_interruption_leaves_nothing(tmp_path, make_payload, fields, error):
    def interrupt(path):
        raise error

    with pytest.raises(error):
        write_checkpoint(tmp_path, 1, make_payload(extra_files={"x": interrupt}), fields)
    assert list(tmp_path.iterdir()) == []


def test_everything_is_on_disk_before_the_rename(tmp_path, make_payload, fields, monkeypatch):
    synced, events = set(), []
    fsync, rename = os.fsync, Path.rename

    def record_sync(descriptor):
        synced.add(Path(f"/proc/self/fd/{descriptor}").resolve().name)
        fsync(descriptor)

    def record_rename(path, target):
        events.append((set(synced), sorted(p.name for p in path.iterdir())))
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(Path, "rename", record_rename)
    write_checkpoint(tmp_path, 1, make_payload(), fields)
    [(before, files)] = events
    assert set(files) - {".owner.json"} < before, "every file was synced before the rename"
    assert any(".incomplete-" in name for name in before), "so was their directory"
    assert tmp_path.name in synced, "and the run directory after it"


def test_completion_comes_last(tmp_path, make_payload, fields, monkeypatch):
    from voicehub.checkpoints import writer

    seen = []
    write = writer.write_synced

    def record(path, data):
        seen.append(path.name)
        return write(path, data)

    monkeypatch.setattr(writer, "write_synced", record)
    write_checkpoint(tmp_path, 1, make_payload(), fields)
    assert seen[-2:] == ["checkpoint_manifest.json", ".complete"]


# What may not be saved


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize(
    "dtype",
    [
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.float64,
        torch.complex64,
        torch.float8_e5m2,
    ],
)
def test_weights_that_are_not_finite_are_never_saved(tmp_path, fields, value, dtype):
    good = write_checkpoint(tmp_path, 1, CheckpointPayload({"w": torch.ones(3)}), fields)
    weights = torch.ones(100)
    weights[41] = value
    bad = CheckpointPayload({"encoder.weight": weights.to(dtype), "ok": torch.ones(1)})
    with pytest.raises(CheckpointError, match=r"NaN or infinite.*1 tensor\(s\): 'encoder.weight'"):
        write_checkpoint(tmp_path, 2, bad, fields)
    assert list(tmp_path.iterdir()) == [good]


def test_large_finite_weights_are_saved(tmp_path, fields):
    largest = {
        str(dtype): torch.full((100,), torch.finfo(dtype).max, dtype=dtype)
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    }
    write_checkpoint(tmp_path, 1, CheckpointPayload(largest), fields)


def test_infinite_mask_buffers_may_be_declared(tmp_path, fields):
    mask = torch.tensor([0.0, -float("inf")])
    payload = CheckpointPayload({"mask": mask}, allow_non_finite={"mask"})
    path = write_checkpoint(tmp_path, 1, payload, fields)
    assert open_checkpoint(path).tensors()["mask"].tolist() == mask.tolist()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"runtime": {"callback": {"fn": len}}}, r"runtime state\['state'\]\['callback'\]\['fn'\]"),
        ({"optimizer": {"x": object()}}, r"optimizer state\['x'\] is a builtins\.object"),
        ({"documents": {"d.json": {"a": [1, {2}]}}}, r"d\.json\.a\[1\] is a set"),
        ({"documents": {"d.json": {1: 2}}}, r"d\.json has the key 1"),
        ({"documents": {"../d.json": 1}}, "does not lie inside"),
        ({"documents": {"/d.json": 1}}, "does not lie inside"),
        ({"documents": {"": 1}}, "does not lie inside"),
        ({"documents": {"optimizer.pt": 1}}, "'optimizer.pt' is one that"),
        ({"extra_files": {".complete": print}}, "'.complete' is one that"),
        ({"documents": {"a": 1}, "extra_files": {"a": print}}, "'a' is both"),
        ({"extra_files": {"a": lambda path: None}}, "'a' wrote nothing"),
        ({"tensors": {"w": torch.eye(2).to_sparse()}}, "'w' is sparse"),
        ({"tensors": {"w": torch.empty(2, device="meta")}}, "'w' is sparse or holds no data"),
        ({"tensors": {"w": torch.ones(2, dtype=torch.complex128)}}, "complex128"),
    ],
)
def test_what_cannot_be_stored_is_named(tmp_path, make_payload, fields, changes, message):
    with pytest.raises(CheckpointError, match=message):
        write_checkpoint(tmp_path, 1, make_payload(**changes), fields)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("run_id", [None, "", 3])
def test_a_checkpoint_needs_a_run(tmp_path, make_payload, run_id):
    with pytest.raises(CheckpointError, match="run_id"):
        write_checkpoint(tmp_path, 1, make_payload(), {"run_id": run_id})


# The place is taken


def test_a_run_replaces_its_own_checkpoint(tmp_path, make_payload, fields, hidden_names):
    """A resume from an older checkpoint reaches steps that were saved before."""
    write_checkpoint(tmp_path, 5, make_payload(1), fields)
    path = write_checkpoint(tmp_path, 5, make_payload(2), fields)
    assert open_checkpoint(path).tensors()["steps"] == 2
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("damage", [".complete", "checkpoint_manifest.json"])
def test_a_damaged_checkpoint_is_set_aside(tmp_path, make_payload, fields, damage):
    old = write_checkpoint(tmp_path, 5, make_payload(1), fields)
    (old / damage).unlink()
    path = write_checkpoint(tmp_path, 5, make_payload(2), fields)
    assert open_checkpoint(path).tensors()["steps"] == 2
    [aside] = [p for p in tmp_path.iterdir() if p != path]
    assert aside.name.startswith("checkpoint-5.damaged-")
    assert list_checkpoints(tmp_path) == [path]


def test_a_checkpoint_with_a_damaged_file_is_replaced(tmp_path, make_payload, fields):
    """The newest was found corrupt, an older one resumed, and the run comes back to its step."""
    old = write_checkpoint(tmp_path, 5, make_payload(1), fields)
    (old / "optimizer.pt").write_bytes(b"")
    path = write_checkpoint(tmp_path, 5, make_payload(2), fields)
    assert open_checkpoint(path).tensors()["steps"] == 2


def test_another_runs_checkpoint_is_left_alone(tmp_path, make_payload, fields):
    old = write_checkpoint(tmp_path, 5, make_payload(1), {**fields, "run_id": "other"})
    with pytest.raises(FileExistsError, match="belongs to run 'other'"):
        write_checkpoint(tmp_path, 5, make_payload(2), fields)
    assert open_checkpoint(old).tensors()["steps"] == 1
    assert list(tmp_path.iterdir()) == [old]


@pytest.mark.parametrize("kind", ["directory", "file", "link"])
def test_something_foreign_is_left_alone(tmp_path, make_payload, fields, kind):
    place = tmp_path / "checkpoint-5"
    if kind == "directory":
        place.mkdir()
        (place / "notes.txt").write_text("mine")
    elif kind == "file":
        place.write_text("mine")
    else:
        place.symlink_to(tmp_path / "nowhere")
    with pytest.raises(CheckpointExistsError, match="is no checkpoint"):
        write_checkpoint(tmp_path, 5, make_payload(), fields)
    assert list(tmp_path.iterdir()) == [place]


def test_the_old_checkpoint_returns_when_the_rename_fails(
    tmp_path, make_payload, fields, monkeypatch
):
    old = write_checkpoint(tmp_path, 5, make_payload(1), fields)
    content = snapshot(make_payload(2))
    rename, calls = Path.rename, []

    def fail_second(path, target):
        calls.append(path)
        if len(calls) == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail_second)
    with pytest.raises(CheckpointError, match=os.strerror(errno.EIO)):
        commit(tmp_path, 5, content, fields)
    assert open_checkpoint(old).tensors()["steps"] == 1
    assert list(tmp_path.iterdir()) == [old]


def test_documents_are_strict_json(tmp_path, make_payload, fields):
    values = {"nan": float("nan"), "inf": [float("inf"), -float("inf")], "tuple": (1, 2.0, "é")}
    path = write_checkpoint(tmp_path, 1, make_payload(documents={"d.json": values}), fields)
    raw = json.loads((path / "d.json").read_text("utf-8"), parse_constant=pytest.fail)
    assert raw == {
        "nan": {"$float": "nan"},
        "inf": [{"$float": "inf"}, {"$float": "-inf"}],
        "tuple": [1, 2.0, "é"],
    }
    back = open_checkpoint(path).document("d.json")
    assert back["inf"] == values["inf"]
    assert back["nan"] != back["nan"]
