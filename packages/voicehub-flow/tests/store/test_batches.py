"""Batches: statistics, absent modalities, keyed draws, padding."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from voicehub.data.keyed_random import SampleKey
from voicehub.errors import DataError
from voicehub_flow.multimodal.conformance import SHAPES, clip_of, write_tiny_store
from voicehub_flow.objective import AudioVisualNull, LogitNormalTime
from voicehub_flow.store import layout
from voicehub_flow.store.collate import StoreCollator
from voicehub_flow.store.config import StoreSetConfig
from voicehub_flow.store.dataset import StoreDataset, StoreItem
from voicehub_flow.store.null_text import null_text_of
from voicehub_flow.store.reader import statistics_of
from voicehub_flow.store.sets import open_set
from voicehub_flow.store.statistics import ChannelStatistics


def item_of(number: int, *, video: bool = True, key: SampleKey | None = None) -> StoreItem:
    """A clip as a dataset yields it."""
    found = clip_of(5 + number % 8, number)
    return StoreItem(
        f"clip-{number}",
        found[layout.MEAN],
        found[layout.STD],
        found[layout.TEXT],
        found[layout.CLIP] if video else None,
        found[layout.SYNC] if video else None,
        "",
        key,
    )


def collator(probability: float = 0.1) -> StoreCollator:
    return StoreCollator(SHAPES, LogitNormalTime(), AudioVisualNull(probability))


@given(st.lists(st.integers(0, 30), min_size=1, max_size=5), st.floats(-1e3, 1e3))
@settings(max_examples=30, deadline=None)
def test_statistics_of_pieces_are_those_of_the_whole(counts, offset):
    generator = torch.Generator().manual_seed(sum(counts))
    parts = [offset + torch.randn(count, 3, generator=generator).double() for count in counts]
    whole = torch.cat(parts)
    total = ChannelStatistics.of(parts[0])
    for part in parts[1:]:
        total = total.merged(ChannelStatistics.of(part))
    total = ChannelStatistics.from_json(total.to_json())
    assert total.count == len(whole)
    if len(whole) > 1:
        torch.testing.assert_close(total.mean, whole.mean(0), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(total.deviation, whole.std(0), rtol=1e-9, atol=1e-12)


def test_a_channel_that_never_changes_cannot_be_normalised():
    with pytest.raises(DataError, match=r"channels \[1\] never change over 4 frames"):
        _ = ChannelStatistics.of(torch.tensor([[1.0, 2.0]] * 2 + [[3.0, 2.0]] * 2)).deviation


def test_statistics_are_of_valid_frames_alone(tmp_path):
    directory = write_tiny_store(tmp_path / "store", 7, 0)
    found = open_set("s", StoreSetConfig(path=str(directory)), setting="data.train")
    data = StoreDataset([found])
    frames = torch.cat([data[index].mean for index in range(len(data))]).double()
    for statistics in (found.store.latent_statistics(), statistics_of(found.store.shards)):
        torch.testing.assert_close(statistics.mean, frames.mean(0))
        torch.testing.assert_close(statistics.deviation, frames.std(0))


def test_an_absent_modality_is_always_null_and_draws_come_on_top():
    plain, certain = collator(0.0), collator(0.999999)
    key = SampleKey(0, 0, 0, 0)
    items = [item_of(0, key=key), item_of(1, video=False, key=key)]
    batch = plain(items)
    assert batch["no_clip"].tolist() == batch["no_sync"].tolist() == [False, True]
    assert batch["no_text"].tolist() == [False, False]
    assert not batch["clip"][1].any() and not batch["sync"][1].any()
    batch = certain(items)
    for name in ("no_clip", "no_sync", "no_text"):
        assert batch[name].tolist() == [True, True]


def test_nothing_is_dropped_and_every_draw_is_repeated_outside_training():
    make = collator(0.999999)
    one, two = make([item_of(3), item_of(4)]), make([item_of(4), item_of(5, video=False)])
    assert not one["no_text"].any() and not one["no_clip"].any()
    frames = int(one["frames"][1])
    for name in ("noise", "epsilon"):
        assert torch.equal(one[name][1, :frames], two[name][0, :frames])
    assert torch.equal(one["time"][1], two["time"][0])
    assert not torch.equal(one["time"][0], one["time"][1])  # each clip has draws of its own
    assert two["no_clip"].tolist() == [False, True]


def test_draws_of_training_are_keyed_by_sample_and_new_every_time():
    make = collator()
    key = SampleKey(1, 2, 3, 4)
    alone = make([item_of(6, key=key)])
    beside = make([item_of(1, key=SampleKey(1, 2, 0, 1)), item_of(6, key=key)])
    again = make([item_of(6, key=key._replace(draw=9))])
    frames = int(alone["frames"][0])
    assert torch.equal(alone["noise"][0], beside["noise"][1, :frames])
    assert torch.equal(alone["epsilon"][0], beside["epsilon"][1, :frames])
    assert not torch.equal(alone["noise"], again["noise"])
    assert not torch.equal(alone["noise"], alone["epsilon"])


def test_a_mask_comes_only_with_padding():
    make = collator()
    assert "mask" not in make([item_of(0), item_of(8)])
    batch = make([item_of(0), item_of(2)])
    assert batch["mask"].sum(1).tolist() == batch["frames"].tolist() == [5, 7]
    assert not batch["noise"][0, 5:].any()


@pytest.mark.parametrize("suffix", [".npy", ".safetensors", ".pth"])
def test_the_empty_text_is_read_from_each_format(tmp_path, suffix):
    import numpy as np
    from safetensors.torch import save_file

    features = torch.randn(2, 3, generator=torch.Generator().manual_seed(0))
    path = tmp_path / f"empty{suffix}"
    if suffix == ".npy":
        np.save(path, features.numpy())
    elif suffix == ".pth":
        torch.save(features[None], path)
    else:
        save_file({"anything": features}, path)
    assert torch.equal(null_text_of(str(path), [], (2, 3), "data.null_text"), features)
    with pytest.raises(DataError, match=r"the shape \[2, 3\]; the stores' texts have \[4, 3\]"):
        null_text_of(str(path), [], (4, 3), "data.null_text")
    with pytest.raises(DataError, match="data.null_text=FILE"):
        null_text_of(None, [], (2, 3), "data.null_text")


def test_a_pickle_that_runs_code_is_not_read(tmp_path):
    import pickle

    class Harmful:
        def __reduce__(self):
            return (print, ("executed",))

    path = tmp_path / "empty.pth"
    path.write_bytes(pickle.dumps(Harmful(), protocol=2))
    with pytest.raises(DataError, match="cannot be read"):
        null_text_of(str(path), [], (2, 3), "data.null_text")
