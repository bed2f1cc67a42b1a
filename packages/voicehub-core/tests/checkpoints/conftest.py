"""A small training run whose state can be saved, and tools to damage what was saved."""

from __future__ import annotations

import hashlib
import json

import pytest
import torch

from voicehub.checkpoints.random_state import capture_random_state
from voicehub.checkpoints.snapshot import CheckpointPayload

FIELDS = {"run_id": "run-1", "model_type": "toy", "optimizer_names": ["default"]}


@pytest.fixture
def fields():
    return dict(FIELDS)


@pytest.fixture
def make_payload():
    return _make_payload


@pytest.fixture
def reseal():
    return _reseal


@pytest.fixture
def hidden_names():
    """Return a function that lists what a reader of the run directory should never see stay."""
    return lambda run_dir: sorted(p.name for p in run_dir.iterdir() if p.name.startswith("."))


def _make_payload(seed=0, **changes):
    generator = torch.Generator().manual_seed(seed)
    weight = torch.nn.Parameter(torch.randn(8, 4, generator=generator))
    optimizer = torch.optim.AdamW([weight], lr=1e-3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    weight.square().sum().backward()
    optimizer.step()
    scheduler.step()
    settings = {
        "tensors": {"weight": weight, "steps": torch.tensor(seed)},
        "optimizer": {"default": optimizer.state_dict()},
        "scheduler": {"default": scheduler.state_dict()},
        "scaler": {"scale": 65536.0},
        "rng_state": capture_random_state(),
        "runtime": {"callbacks": [{"patience": 3, "best": float("inf")}], "seen": {1, 2}},
        "documents": {"trainer_state.json": {"global_step": seed, "loss": float("nan")}},
        "extra_files": {"config.json": lambda path: path.write_text('{"a": 1}')},
    }
    return CheckpointPayload(**{**settings, **changes})


def _reseal(checkpoint, change=lambda manifest: None):
    """Make manifest and ``.complete`` agree with changed files, as a forger would."""
    path = checkpoint / "checkpoint_manifest.json"
    manifest = json.loads(path.read_text())
    for name, entry in manifest["file_integrity"].items():
        content = (checkpoint / name).read_bytes()
        entry["size"] = len(content)
        entry["sha256"] = hashlib.sha256(content).hexdigest()
    change(manifest)
    path.write_text(json.dumps(manifest))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    (checkpoint / ".complete").write_text(digest + "\n")
