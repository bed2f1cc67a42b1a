"""What is saved comes back bit by bit, in files that other tools read too."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import threading

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from voicehub.checkpoints.random_state import restore_random_state
from voicehub.checkpoints.reader import CheckpointNotFoundError, find_checkpoint, open_checkpoint
from voicehub.checkpoints.snapshot import CheckpointPayload, snapshot
from voicehub.checkpoints.writer import commit, write_checkpoint

FILES = {
    ".complete",
    "checkpoint_manifest.json",
    "config.json",
    "model_state.safetensors",
    "optimizer.pt",
    "rng_state.pth",
    "scaler.pt",
    "scheduler.pt",
    "trainer_state.json",
    "training_runtime.pt",
}


def same(left, right):
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right


def test_every_part_comes_back(tmp_path, make_payload, fields):
    payload = make_payload(7)
    path = write_checkpoint(tmp_path / "run", 7, payload, fields)
    assert path == tmp_path / "run" / "checkpoint-7"
    assert {p.name for p in path.iterdir()} == FILES
    assert [p.name for p in path.parent.iterdir()] == ["checkpoint-7"]
    checkpoint = open_checkpoint(path)
    assert (checkpoint.step, checkpoint.run_id) == (7, "run-1")
    assert same(checkpoint.tensors(), {k: v.detach() for k, v in payload.tensors.items()})
    assert same(checkpoint.optimizer(), payload.optimizer)
    assert same(checkpoint.scheduler(), payload.scheduler)
    assert checkpoint.scaler() == payload.scaler
    assert checkpoint.runtime() == payload.runtime
    state = checkpoint.document("trainer_state.json")
    assert state["global_step"] == 7
    assert np.isnan(state["loss"])
    assert checkpoint.document("config.json") == {"a": 1}


def test_optional_parts_may_be_absent(tmp_path, make_payload, fields):
    path = write_checkpoint(tmp_path, 1, make_payload(1, scaler=None, documents={}), fields)
    checkpoint = open_checkpoint(path)
    assert checkpoint.scaler() is None
    with pytest.raises(CheckpointNotFoundError, match=r"holds no trainer_state\.json"):
        checkpoint.document("trainer_state.json")


def test_random_draws_continue(tmp_path, make_payload, fields):
    np.random.randn()
    random.gauss(0, 1)
    path = write_checkpoint(tmp_path, 1, make_payload(1), fields)

    def draw():
        return (
            torch.rand(3).tolist(),
            np.random.randn(3).tolist(),
            random.gauss(0, 1),
            random.random(),
        )

    expected = draw()
    restore_random_state(open_checkpoint(path).rng())
    assert draw() == expected


def test_saving_draws_nothing(tmp_path, make_payload, fields):
    payload = make_payload(1)
    before = (torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate())
    write_checkpoint(tmp_path, 1, payload, fields)
    open_checkpoint(tmp_path / "checkpoint-1").rng()
    after = (torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate())
    assert before == after


def test_plain_tools_read_the_files(tmp_path, make_payload, fields):
    payload = make_payload(2)
    path = write_checkpoint(tmp_path, 2, payload, fields)
    assert torch.equal(
        load_file(path / "model_state.safetensors")["weight"], payload.tensors["weight"]
    )
    natural = torch.load(path / "optimizer.pt", weights_only=True)
    assert same(natural, payload.optimizer)
    for name in ("trainer_state.json", "checkpoint_manifest.json"):
        json.loads((path / name).read_text(), parse_constant=pytest.fail)
    manifest = (path / "checkpoint_manifest.json").read_bytes()
    assert (path / ".complete").read_text().strip() == hashlib.sha256(manifest).hexdigest()


def test_the_manifest_says_what_the_checkpoint_is(tmp_path, make_payload, fields):
    path = write_checkpoint(tmp_path, 3, make_payload(3), fields)
    manifest = json.loads((path / "checkpoint_manifest.json").read_text())
    assert manifest["format_version"] == 4
    assert manifest["global_step"] == 3
    assert fields.items() <= manifest.items()
    assert set(manifest["required_files"]) == FILES - {".complete", "checkpoint_manifest.json"}
    for name, entry in manifest["file_integrity"].items():
        content = (path / name).read_bytes()
        assert entry == {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}


DTYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.uint16,
    torch.uint32,
    torch.complex64,
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_type_of_tensor_comes_back(tmp_path, fields, dtype):
    tensor = torch.tensor([[0, 1], [2, 3]]).to(torch.float32).to(dtype)
    write_checkpoint(tmp_path, 1, CheckpointPayload({"t": tensor}, {"t": tensor}), fields)
    checkpoint = open_checkpoint(tmp_path / "checkpoint-1")
    for loaded in (checkpoint.tensors()["t"], checkpoint.optimizer()["t"]):
        assert loaded.dtype == dtype
        assert loaded.view(torch.uint8).tolist() == tensor.view(torch.uint8).tolist()


@pytest.mark.parametrize("copy", [False, True])
def test_views_ties_scalars_and_empty_tensors(tmp_path, fields, copy):
    base = torch.arange(1000.0)
    tensors = {
        "view": base[10:20],
        "transposed": base[:6].view(2, 3).t(),
        "tied": base,
        "tied_too": base,
        "scalar": torch.tensor(3.0),
        "empty": torch.empty(0, 4),
        "parameter": torch.nn.Parameter(base[:2]),
        "expanded": torch.ones(1).expand(3),
        "empty_too": torch.empty(0),
    }
    content = snapshot(CheckpointPayload(tensors, {"view": base[10:20]}), copy=copy)
    path = commit(tmp_path, 1, content, fields)
    assert same(open_checkpoint(path).tensors(), {k: v.detach() for k, v in tensors.items()})
    # A view of ten numbers is stored as ten numbers, not with the thousand it is cut from.
    assert (path / "optimizer.pt").stat().st_size < 3000


def test_a_model_without_tensors_can_be_saved(tmp_path, fields):
    write_checkpoint(tmp_path, 0, CheckpointPayload({}), fields)
    assert open_checkpoint(tmp_path / "checkpoint-0").tensors() == {}


def test_a_snapshot_is_what_it_was_and_may_be_committed_from_a_thread(
    tmp_path, make_payload, fields
):
    payload = make_payload(4)
    expected = payload.tensors["weight"].detach().clone()
    moment = payload.optimizer["default"]["state"][0]["exp_avg"]
    expected_moment = moment.clone()
    content = snapshot(payload)
    with torch.no_grad():  # training goes on
        payload.tensors["weight"].zero_()
        moment.zero_()
        payload.documents["trainer_state.json"]["global_step"] = -1
    thread = threading.Thread(target=commit, args=(tmp_path, 4, content, fields))
    thread.start()
    thread.join()
    checkpoint = open_checkpoint(tmp_path / "checkpoint-4")
    assert torch.equal(checkpoint.tensors()["weight"], expected)
    assert torch.equal(checkpoint.optimizer()["default"]["state"][0]["exp_avg"], expected_moment)
    assert checkpoint.document("trainer_state.json")["global_step"] == 4


def test_a_moved_run_directory_still_works(tmp_path, make_payload, fields):
    write_checkpoint(tmp_path / "old", 5, make_payload(5), fields)
    shutil.move(tmp_path / "old", tmp_path / "new")
    path = find_checkpoint(tmp_path / "new")
    assert open_checkpoint(path).step == 5
    for file in path.iterdir():
        assert str(tmp_path).encode() not in file.read_bytes(), (
            f"{file.name} holds an absolute path"
        )


def test_extra_files_may_be_directories(tmp_path, make_payload, fields):
    def tokenizer(path):
        path.mkdir()
        (path / "vocab.json").write_text("{}")
        (path / "deep").mkdir()
        (path / "deep" / "merges.txt").write_text("a b")

    path = write_checkpoint(
        tmp_path, 1, make_payload(1, extra_files={"processor": tokenizer}), fields
    )
    checkpoint = open_checkpoint(path)
    assert checkpoint.has_file("processor/deep/merges.txt")
    assert (path / "processor" / "deep" / "merges.txt").read_text() == "a b"


def test_documents_may_lie_in_directories(tmp_path, make_payload, fields):
    path = write_checkpoint(tmp_path, 1, make_payload(1, documents={"a/b.json": [1]}), fields)
    assert open_checkpoint(path).document("a/b.json") == [1]
