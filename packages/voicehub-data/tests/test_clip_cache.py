"""Tensors of clips on disk: what names them, and what is made again."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from voicehub_data.clip_cache import ClipCache, clip_key
from voicehub_data.manifest import ManifestRow


@pytest.fixture
def row(write_audio):
    return ManifestRow("a", write_audio("a.wav", 0.1, 8000), "", 0.1)


class Maker:
    made = 0

    def __call__(self):
        self.made += 1
        return {"mel": torch.arange(6.0).view(2, 3).T, "frames": torch.tensor([3])}


def test_a_clip_is_made_once(row, tmp_path):
    cache, make = ClipCache(tmp_path / "new" / "cache"), Maker()
    for _ in range(2):
        found = cache.get(row, {"bins": 2}, make)
        assert torch.equal(found["mel"], torch.arange(6.0).view(2, 3).T)
        assert found["frames"].tolist() == [3]
    assert make.made == 1
    assert [path.name for path in cache.directory.iterdir()] == [
        f"{clip_key(row, {'bins': 2})}.safetensors"
    ]


def test_a_damaged_clip_is_made_again(row, tmp_path):
    cache, make = ClipCache(tmp_path), Maker()
    cache.get(row, {}, make)
    path = tmp_path / f"{clip_key(row, {})}.safetensors"
    path.write_bytes(path.read_bytes()[:20])
    assert cache.get(row, {}, make)["frames"].tolist() == [3]
    assert make.made == 2


def test_without_a_folder_nothing_is_kept(row):
    cache, make = ClipCache(None), Maker()
    cache.get(row, {}, make)
    cache.get(row, {}, make)
    assert make.made == 2


def test_content_segment_and_settings_name_a_clip(row, tmp_path, write_audio):
    moved = tmp_path / "moved.wav"
    moved.write_bytes(row.audio_filepath.read_bytes())
    assert clip_key(replace(row, audio_filepath=moved), {"a": 1, "b": 2}) == clip_key(
        row, {"b": 2, "a": 1}
    )
    other = replace(row, audio_filepath=write_audio("b.wav", 0.1, 8000, seed=1))
    keys = {
        clip_key(row, {}),
        clip_key(other, {}),
        clip_key(replace(row, offset=0.05), {}),
        clip_key(replace(row, duration=None), {}),
        clip_key(row, {"a": 1}),
    }
    assert len(keys) == 5
