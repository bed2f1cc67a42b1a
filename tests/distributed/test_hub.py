"""Uploads of a run whose checkpoints several processes write (C9)."""

from __future__ import annotations

from pathlib import Path

import torch
from hub_tasks import train_and_upload
from safetensors.torch import load

from voicehub.testing.ranks import run_on_ranks
from voicehub_hf.hub.loopback import serve_hub


def test_shards_of_the_weights_arrive_once_and_whole(tmp_path: Path) -> None:
    run = {
        "recipe": "gan",
        "strategy": "fsdp",
        "per_device_train_batch_size": 2,
        "max_steps": 2,
        "save_strategy": "steps",
        "save_steps": 1,
        "optim": "adamw",
    }
    with serve_hub() as hub:
        found = run_on_ranks(2, train_and_upload, tmp_path / "run", hub.url, run)[0]
    assert [commit.message for commit in hub.commits] == [
        "checkpoint-1",
        "checkpoint-2",
        "final model",
    ]
    assert hub.repositories == {"tester/line": True}
    last = {
        path.removeprefix("last-checkpoint/"): content
        for path, content in hub.commits[1].files.items()
    }
    shards = sorted(name for name in last if name.endswith(".safetensors"))
    assert shards == [f"model_state-0000{n}-of-00002.safetensors" for n in (1, 2)]
    assert "model_state.safetensors.index.json" in last
    assert not [name for name in last if name.startswith("optimizer-")]
    arrived = {name: tensor for shard in shards for name, tensor in load(last[shard]).items()}
    assert arrived.keys() == found["weights"].keys()
    assert all(torch.equal(arrived[name], found["weights"][name]) for name in arrived)
