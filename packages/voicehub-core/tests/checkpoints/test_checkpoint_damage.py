"""Damage anywhere is found before anything is read, and named; nothing is ever unpickled."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import pickle

import pytest
import torch

from voicehub.checkpoints.layout import latest_checkpoint
from voicehub.checkpoints.reader import CheckpointNotFoundError, find_checkpoint, open_checkpoint
from voicehub.checkpoints.writer import write_checkpoint
from voicehub.errors import CheckpointCorruptError, CheckpointMismatchError

FILES = [
    "config.json",
    "model_state.safetensors",
    "optimizer.pt",
    "rng_state.pth",
    "scaler.pt",
    "scheduler.pt",
    "trainer_state.json",
    "training_runtime.pt",
]
SEALS = ["checkpoint_manifest.json", ".complete"]


@pytest.fixture
def checkpoint(tmp_path, make_payload, fields):
    return write_checkpoint(tmp_path, 3, make_payload(3), fields)


@pytest.mark.parametrize("where", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("name", FILES + SEALS)
def test_one_flipped_bit_anywhere_is_found_and_named(checkpoint, name, where):
    path = checkpoint / name
    content = bytearray(path.read_bytes())
    content[int(where * (len(content) - 1))] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointCorruptError) as caught:
        open_checkpoint(checkpoint)
    # Damage to the manifest or to its digest names both, since either may be the wrong one.
    for expected in SEALS if name in SEALS else [str(path)]:
        assert expected in str(caught.value)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("change", [lambda b: b[:-1], lambda b: b + b"\0", lambda b: b""])
def test_another_size_is_found_and_named(checkpoint, name, change):
    path = checkpoint / name
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(CheckpointCorruptError, match=rf"{name} has [\d,]+ bytes"):
        open_checkpoint(checkpoint)


@pytest.mark.parametrize("name", FILES + SEALS)
def test_a_missing_file_is_named(checkpoint, name):
    (checkpoint / name).unlink()
    with pytest.raises(CheckpointCorruptError, match=rf"{name} is missing"):
        open_checkpoint(checkpoint)


@pytest.mark.parametrize("names", list(itertools.combinations(FILES + SEALS, 2)), ids="-".join)
def test_two_files_that_changed_places_are_found_and_named(checkpoint, names):
    first, second = (checkpoint / name for name in names)
    content = first.read_bytes(), second.read_bytes()
    second.write_bytes(content[0])
    first.write_bytes(content[1])
    with pytest.raises(CheckpointCorruptError) as caught:
        open_checkpoint(checkpoint)
    assert any(name in str(caught.value) for name in names)


@pytest.mark.parametrize("name", ["notes.txt", "optimizer.pt.bak", "inside/model.safetensors"])
def test_a_foreign_file_is_named(checkpoint, name):
    (checkpoint / name).parent.mkdir(exist_ok=True)
    (checkpoint / name).write_text("mine")
    with pytest.raises(CheckpointCorruptError, match=rf"{name} is not part of the checkpoint"):
        open_checkpoint(checkpoint)


def test_hidden_files_of_file_managers_are_passed_over(checkpoint):
    (checkpoint / ".DS_Store").write_text("")
    assert open_checkpoint(checkpoint).step == 3


def test_an_incomplete_checkpoint_is_never_the_latest(checkpoint, make_payload, fields):
    later = write_checkpoint(checkpoint.parent, 10, make_payload(10), fields)
    assert find_checkpoint(checkpoint.parent) == later
    (later / ".complete").unlink()
    assert find_checkpoint(checkpoint.parent) == checkpoint
    with pytest.raises(CheckpointCorruptError, match="never completed"):
        open_checkpoint(later)


def test_finding_the_latest_reads_no_file(checkpoint, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a file was opened")

    monkeypatch.setattr("builtins.open", refuse)
    monkeypatch.setattr("pathlib.Path.open", refuse)
    assert latest_checkpoint(checkpoint.parent) == checkpoint


def test_no_checkpoint_is_an_error_that_says_so(tmp_path):
    with pytest.raises(FileNotFoundError, match="No checkpoint found in"):
        find_checkpoint(tmp_path / "nowhere")
    with pytest.raises(CheckpointNotFoundError, match="Checkpoint does not exist"):
        open_checkpoint(tmp_path / "checkpoint-1")


@pytest.mark.parametrize(
    ("version", "advice"), [(5, "newer"), (3, "convert"), ("4", "convert"), (None, "convert")]
)
def test_other_formats_are_refused_with_both_versions(checkpoint, reseal, version, advice):
    reseal(checkpoint, lambda manifest: manifest.update(format_version=version))
    with pytest.raises(CheckpointMismatchError, match=rf"format {version!r}.* reads 4.*{advice}"):
        open_checkpoint(checkpoint)


def test_a_renamed_directory_is_refused_with_both_steps(checkpoint):
    renamed = checkpoint.rename(checkpoint.with_name("checkpoint-9"))
    with pytest.raises(CheckpointMismatchError, match=r"step 9.* step 3"):
        open_checkpoint(renamed)
    assert open_checkpoint(renamed.rename(renamed.with_name("best"))).step == 3


@pytest.mark.parametrize("name", ["../outside.json", "/etc/hostname"])
def test_a_manifest_that_points_outside_is_refused(checkpoint, reseal, name):
    def point_outside(manifest):
        entry = manifest["file_integrity"].pop("config.json")
        manifest["file_integrity"][name] = entry
        manifest["required_files"] = sorted(manifest["file_integrity"])

    reseal(checkpoint, point_outside)
    with pytest.raises(CheckpointCorruptError, match="outside the checkpoint"):
        open_checkpoint(checkpoint)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.pop("file_integrity"),
        lambda m: m.pop("required_files"),
        lambda m: m["required_files"].pop(),
        lambda m: m.update(global_step="3"),
        lambda m: m["file_integrity"].update({"optimizer.pt": 3}),
    ],
)
def test_a_manifest_without_its_entries_is_refused(checkpoint, reseal, change):
    reseal(checkpoint, change)
    with pytest.raises(CheckpointCorruptError, match="lacks entries"):
        open_checkpoint(checkpoint)


def test_a_manifest_that_is_no_json_is_refused(checkpoint):
    (checkpoint / "checkpoint_manifest.json").write_bytes(b"{")
    (checkpoint / ".complete").write_text(hashlib.sha256(b"{").hexdigest() + "\n")
    with pytest.raises(CheckpointCorruptError, match="is no JSON"):
        open_checkpoint(checkpoint)


class Evil:
    """Creates a file when unpickled."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("optimizer.pt", lambda c: c.optimizer()),
        ("scheduler.pt", lambda c: c.scheduler()),
        ("scaler.pt", lambda c: c.scaler()),
        ("rng_state.pth", lambda c: c.rng()),
        ("training_runtime.pt", lambda c: c.runtime()),
    ],
)
@pytest.mark.parametrize("plain_pickle", [False, True])
def test_code_with_a_valid_digest_is_refused(
    checkpoint, reseal, tmp_path, name, read, plain_pickle
):
    trace = tmp_path / "executed"
    if plain_pickle:
        (checkpoint / name).write_bytes(pickle.dumps(Evil(trace), protocol=2))
    else:
        torch.save({"state": Evil(trace)}, checkpoint / name)
    reseal(checkpoint)
    opened = open_checkpoint(checkpoint)
    with pytest.raises(CheckpointCorruptError, match=rf"{name} was refused"):
        read(opened)
    assert not trace.exists()
    with contextlib.suppress(RuntimeError):  # a bare pickle runs its code, then fails
        torch.load(checkpoint / name, weights_only=False)
    assert trace.exists(), "the file would have run code"


@pytest.mark.parametrize("content", [b"", b"nonsense", b"PK\x03\x04nonsense"])
def test_garbage_with_a_valid_digest_is_named(checkpoint, reseal, content):
    (checkpoint / "optimizer.pt").write_bytes(content)
    (checkpoint / "model_state.safetensors").write_bytes(content)
    reseal(checkpoint)
    opened = open_checkpoint(checkpoint)
    with pytest.raises(CheckpointCorruptError, match=r"optimizer\.pt"):
        opened.optimizer()
    with pytest.raises(CheckpointCorruptError, match=r"model_state\.safetensors"):
        opened.tensors()


def test_json_with_a_valid_digest_but_no_json_is_named(checkpoint, reseal):
    (checkpoint / "trainer_state.json").write_text("{")
    reseal(checkpoint)
    with pytest.raises(CheckpointCorruptError, match=r"trainer_state\.json is no JSON"):
        open_checkpoint(checkpoint).document("trainer_state.json")


def test_the_manifest_is_sorted_json(checkpoint):
    text = (checkpoint / "checkpoint_manifest.json").read_text()
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
