"""Rotation keeps what matters and touches nothing that it did not make."""

from __future__ import annotations

import os
import socket

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from voicehub.checkpoints.layout import staging_name
from voicehub.checkpoints.litter import discard_checkpoint, remove_litter
from voicehub.checkpoints.manifest import build_manifest, complete_mark
from voicehub.checkpoints.owner import read_owner, write_owner
from voicehub.checkpoints.rotation import rotate
from voicehub.checkpoints.strict_json import dump_json, parse_json


def checkpoint(run_dir, step, run_id="mine"):
    path = run_dir / f"checkpoint-{step}"
    path.mkdir(parents=True)
    manifest = build_manifest(step, {}, {"run_id": run_id})
    (path / "checkpoint_manifest.json").write_bytes(manifest)
    (path / ".complete").write_bytes(complete_mark(manifest))
    return path


def names(run_dir):
    return {path.name for path in run_dir.iterdir()}


@pytest.mark.parametrize(
    ("limit", "protect", "kept"),
    [
        (None, (), {1, 2, 3, 4}),
        (4, (), {1, 2, 3, 4}),
        (2, (), {3, 4}),
        (1, (), {4}),
        (0, (), {4}),
        (2, ("checkpoint-1",), {1, 4}),
        (1, ("checkpoint-1",), {1, 4}),
        (3, ("checkpoint-4",), {2, 3, 4}),
    ],
)
def test_the_oldest_go_first_but_never_the_best_or_the_newest(tmp_path, limit, protect, kept):
    for step in (1, 2, 3, 4):
        checkpoint(tmp_path, step)
    deleted = rotate(tmp_path, "mine", limit, protect)
    assert names(tmp_path) == {f"checkpoint-{step}" for step in kept}
    assert {path.name for path in deleted} == {f"checkpoint-{s}" for s in (1, 2, 3, 4)} - names(
        tmp_path
    )


def test_protection_takes_paths_too(tmp_path):
    best = checkpoint(tmp_path, 1)
    checkpoint(tmp_path, 2)
    rotate(tmp_path, "mine", 1, [best])
    assert best.exists()


def test_steps_are_ordered_as_numbers(tmp_path):
    for step in (9, 10, 100):
        checkpoint(tmp_path, step)
    rotate(tmp_path, "mine", 2)
    assert names(tmp_path) == {"checkpoint-10", "checkpoint-100"}


def test_foreign_directories_stay(tmp_path):
    checkpoint(tmp_path, 1, "other")
    (tmp_path / "checkpoint-2").mkdir()  # somebody else's, no manifest
    (checkpoint(tmp_path, 3) / ".complete").unlink()  # incomplete
    (checkpoint(tmp_path, 4) / "checkpoint_manifest.json").write_text("{")
    (checkpoint(tmp_path, 5) / "checkpoint_manifest.json").unlink()
    (tmp_path / "final-model").mkdir()
    (tmp_path / "checkpoint-best").mkdir()
    (tmp_path / "metrics.jsonl").touch()
    before = names(tmp_path)
    for step in (6, 7, 8):
        checkpoint(tmp_path, step)
    rotate(tmp_path, "mine", 1)
    assert names(tmp_path) == before | {"checkpoint-8"}


@given(
    steps=st.sets(st.integers(0, 30), min_size=1, max_size=8),
    limit=st.integers(0, 5),
    data=st.data(),
)
@settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
def test_rotation_in_general(tmp_path_factory, steps, limit, data):
    run_dir = tmp_path_factory.mktemp("run")
    for step in steps:
        checkpoint(run_dir, step)
    protected = data.draw(st.sets(st.sampled_from(sorted(steps)), max_size=2))
    rotate(run_dir, "mine", limit, [f"checkpoint-{step}" for step in protected])
    left = {int(name.rpartition("-")[2]) for name in names(run_dir)}
    must = protected | {max(steps)}
    assert must <= left
    assert len(left) == min(len(steps), max(limit, len(must), 1))
    free = left - must
    assert all(step > max(steps - left, default=-1) for step in free), "the oldest went first"


# Deletion and litter


def test_a_deletion_cut_short_leaves_litter_not_half_a_checkpoint(tmp_path, monkeypatch):
    path = checkpoint(tmp_path, 3)

    def stop(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("voicehub.checkpoints.litter.shutil.rmtree", stop)
    with pytest.raises(KeyboardInterrupt):
        discard_checkpoint(path)
    monkeypatch.undo()
    assert not path.exists()
    assert len(remove_litter(tmp_path, "mine")) == 1
    assert names(tmp_path) == set()


def staging(run_dir, **changes):
    path = run_dir / staging_name(3)
    path.mkdir()
    (path / "model_state.safetensors").touch()
    write_owner(path, "mine")
    owner = {**read_owner(path), **changes}
    (path / ".owner.json").write_bytes(dump_json(owner))
    return path


def test_what_a_living_process_writes_stays(tmp_path):
    path = staging(tmp_path)
    assert remove_litter(tmp_path, "mine") == []
    assert path.exists()


def test_the_leavings_of_dead_processes_go(tmp_path):
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    dead = [
        staging(tmp_path, pid=pid),
        staging(tmp_path, pid=pid, run_id="other"),
        staging(tmp_path, started="1"),  # the number has been given to another process since
        staging(tmp_path, boot="before the last reboot"),
    ]
    unowned = tmp_path / staging_name(4)
    unowned.mkdir()
    torn = staging(tmp_path)
    (torn / ".owner.json").write_text("{")
    assert sorted(remove_litter(tmp_path, "mine")) == sorted([*dead, unowned, torn])
    assert names(tmp_path) == set()


def test_another_machines_leavings_go_with_the_run_they_belong_to(tmp_path):
    host = socket.gethostname() + "-other"
    ours, others = staging(tmp_path, host=host), staging(tmp_path, host=host, run_id="other")
    assert remove_litter(tmp_path, "mine") == [ours]
    assert remove_litter(tmp_path) == []
    assert others.exists()


def test_only_our_own_names_are_litter(tmp_path):
    for name in (
        ".checkpoint-3.incomplete",
        ".checkpoint-3.incomplete-XYZ",
        "checkpoint-3.incomplete-0123456789abcdef",
        ".checkpoint-x.incomplete-0123456789abcdef",
        ".git",
        "checkpoint-3",
    ):
        (tmp_path / name).mkdir()
    (tmp_path / staging_name(1)).write_text("a file")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / staging_name(2)).symlink_to(elsewhere)
    before = names(tmp_path)
    assert remove_litter(tmp_path, "mine") == []
    assert names(tmp_path) == before
    assert remove_litter(tmp_path / "missing") == []


def test_owners_are_plain_json(tmp_path):
    write_owner(tmp_path, "mine")
    owner = parse_json((tmp_path / ".owner.json").read_bytes())
    assert owner["pid"] == os.getpid()
    assert owner["run_id"] == "mine"
