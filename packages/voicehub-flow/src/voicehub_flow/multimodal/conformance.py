"""A tiny multimodal transformer for the conformance kit, and clips that follow one rule."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from voicehub.adapters.auto import AutoTrainingAdapter
from voicehub.adapters.base import TrainingAdapter
from voicehub.data.keyed_random import SampleKey, torch_generator
from voicehub.testing import ConformanceCase
from voicehub_data.audio import load_audio
from voicehub_flow.multimodal.model import MultimodalFlow
from voicehub_flow.objective import AudioVisualNull, LogitNormalTime
from voicehub_flow.store import layout
from voicehub_flow.store.collate import StoreCollator
from voicehub_flow.store.config import MultimodalModelConfig, StoreSetConfig
from voicehub_flow.store.dataset import StoreDataset, StoreItem
from voicehub_flow.store.sets import open_set
from voicehub_flow.store.shapes import FeatureShapes
from voicehub_flow.store.statistics import ChannelStatistics
from voicehub_flow.store.writer import join_shards, shard_name, stacked, write_shard

RATE = 4000
#: Words, and how large their sounds and features are.
WORDS, SOUND, TEXT = 4, 2.5, 4.0
#: Near the noise, where only the conditions tell which sound it will be.
TIMES = LogitNormalTime(-2.0, 1.0)
SHAPES = FeatureShapes(
    latent_frames=12,
    latent_dim=3,
    clip_frames=3,
    clip_dim=5,
    sync_frames=8,
    sync_dim=4,
    text_tokens=2,
    text_dim=6,
)
ARCHITECTURE: dict[str, Any] = {
    "num_heads": 2,
    "head_dim": 8,
    "depth": 2,
    "fused_depth": 1,
    "mlp_ratio": 2.0,
    "mlp_multiple": 8,
    "sync_segment": 2,
}
_DEVIATION = 0.05


def tiny_model(**settings: Any) -> MultimodalFlow:
    """A lazy wrapper of random weights."""
    config = MultimodalModelConfig.load({"architecture": ARCHITECTURE, **settings})
    generator = torch_generator("conformance", "statistics")
    statistics = ChannelStatistics.of(torch.randn(50, SHAPES.latent_dim, generator=generator))
    null_text = torch.zeros(SHAPES.text_tokens, SHAPES.text_dim)
    return _Moved.from_config(config, SHAPES, statistics, null_text, model_type="mmaudio")


def clip_of(frames: int, seed: int) -> dict[str, Tensor]:
    """Features of one clip: the word decides a sound, which swells with what is seen to move."""
    generator = torch_generator("conformance", "clip", seed)
    word = int(torch.randint(WORDS, (1,), generator=generator))
    text = TEXT * torch.nn.functional.one_hot(torch.tensor(word), SHAPES.text_dim).float()
    sound = torch.randn(SHAPES.latent_dim, generator=torch_generator("conformance", "word", word))
    motion = torch.randn(SHAPES.sync_frames, generator=generator)
    ratio = SHAPES.sync_frames / SHAPES.latent_frames
    seen = ((torch.arange(frames) + 0.5) * ratio).long()
    mean = SOUND * sound.expand(frames, -1) + 0.3 * motion[seen][:, None]
    return {
        layout.MEAN: mean,
        layout.STD: torch.full_like(mean, _DEVIATION),
        layout.TEXT: text.expand(SHAPES.text_tokens, -1).clone(),
        layout.CLIP: torch.randn(SHAPES.clip_frames, SHAPES.clip_dim, generator=generator),
        layout.SYNC: motion[:, None].expand(-1, SHAPES.sync_dim).clone(),
    }


def write_tiny_store(directory: Path, clips: int, seed: int, *, shard: int = 4) -> Path:
    """A store of such clips with checksums, padded to a whole clip each."""
    records = {}
    for number, start in enumerate(range(0, clips, shard)):
        rows, names = [], []
        for clip in range(start, min(clips, start + shard)):
            frames = SHAPES.latent_frames - clip % 4
            tensors = clip_of(frames, seed * 1000 + clip)
            for name in (layout.MEAN, layout.STD):
                missing = SHAPES.latent_frames - frames
                tensors[name] = torch.nn.functional.pad(tensors[name], (0, 0, 0, missing))
            rows.append({**tensors, layout.FRAMES: torch.tensor(frames)})
            names.append((f"clip-{seed}-{clip}", f"word {clip}"))
        name = shard_name(number)
        records[name] = write_shard(directory / name, names, stacked(rows))
    join_shards(directory, records, extractors={}, record={})
    return directory


class _Moved(MultimodalFlow):
    """A model that has learnt for a moment: behind gates at zero nothing has a gradient yet."""

    def _load_weights(self) -> None:
        super()._load_weights()
        if self._is_artifact:
            return
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                if not parameter.any():
                    drawn = torch.randn(parameter.shape, generator=torch_generator("moved", name))
                    parameter.copy_(0.02 * drawn)


class MMAudioCase(ConformanceCase):
    """Lengths are latent frames."""

    model_type = "mmaudio"
    lengths = (5, 12)
    sample_rate = RATE
    training: ClassVar[dict[str, Any]] = {
        "max_steps": 60,
        "learning_rate": 1e-2,
        "per_device_train_batch_size": 16,
    }

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="voicehub-flow-")

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process makes a case of its own, and does not delete the folder of this one."""
        return type(self), ()

    def build(self, *, dropout: float = 0.0) -> TrainingAdapter:
        """Return a fresh adapter; the published network has no dropout."""
        return AutoTrainingAdapter.from_model(tiny_model())

    def item(self, length: int, seed: int) -> StoreItem:
        """Return an item as the data set yields it; one in three has no video."""
        found = clip_of(length, seed)
        silent = seed % 3 == 0
        return StoreItem(
            f"clip-{seed}",
            found[layout.MEAN],
            found[layout.STD],
            found[layout.TEXT],
            None if silent else found[layout.CLIP],
            None if silent else found[layout.SYNC],
            "",
            SampleKey(0, 0, seed, seed),
        )

    def collate(self, items: Sequence[Any]) -> dict[str, Any]:
        """Return the batch as the collator of a run makes it."""
        return StoreCollator(SHAPES, TIMES, AudioVisualNull(0.1))(list(items))

    def shuffled(self, items: Sequence[Any], seed: int) -> list[StoreItem]:
        """Give each sound the word of the next."""
        moved = [*items[1:], items[0]]
        return [item._replace(text=other.text) for item, other in zip(items, moved, strict=True)]

    def dataset(self, size: int, seed: int) -> StoreDataset:
        """Return the real data set over a store."""
        directory = Path(self._folder.name) / f"store-{size}-{seed}"
        if not directory.is_dir():
            write_tiny_store(directory, size, seed)
        config = StoreSetConfig(path=str(directory))
        return StoreDataset(
            [open_set("tiny", config, setting="data.train", expected=SHAPES.rows())]
        )

    def output_lengths(self, adapter: TrainingAdapter, inputs: Any) -> Tensor:
        """Every latent frame has a velocity."""
        frames: Tensor = inputs["frames"]
        return frames

    def read_audio(self, path: Path) -> np.ndarray[Any, Any]:
        """Return the samples of a file as extractors are given them."""
        return load_audio(path, sample_rate=RATE)
