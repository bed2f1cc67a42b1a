"""A store in the published layout, written by tensordict itself."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

CLIPS = 6


@pytest.fixture
def published(tmp_path):
    """Directory, table and tensors; ids are not in the order of any alphabet."""
    tensordict = pytest.importorskip("tensordict")
    generator = torch.Generator().manual_seed(3)
    shapes = {
        "mean": (5, 3),
        "std": (5, 3),
        "text_features": (2, 4),
        "clip_features": (3, 6),
        "sync_features": (8, 7),
    }
    tensors = {
        name: torch.randn(CLIPS, *shape, generator=generator) for name, shape in shapes.items()
    }
    tensors["std"] = tensors["std"].abs()
    tensors["clip_features"] = tensors["clip_features"].half()
    tensors["sync_features"] = tensors["sync_features"].bfloat16()
    directory = tmp_path / "published"
    tensordict.TensorDict(tensors, batch_size=[CLIPS]).memmap_(str(directory))
    ids = [f"video_{number:02d}" for number in (3, 0, 5, 1, 4, 2)]
    table = tmp_path / "clips.tsv"
    lines = [f"{name}\tlabel of {name}" for name in ids]
    table.write_text("id\tlabel\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return SimpleNamespace(directory=directory, table=table, tensors=tensors, ids=ids)
