"""The published memory-map layout, as tensordict writes it: read, joined, and damage is found."""

from __future__ import annotations

import json
import tracemalloc

import pytest
import torch

from voicehub.errors import DataError
from voicehub_flow.store import layout, open_store, read_table
from voicehub_flow.store.config import StoreSetConfig
from voicehub_flow.store.dataset import StoreDataset
from voicehub_flow.store.sets import open_set
from voicehub_flow.store.verify import verify_store
from voicehub_flow.store.writer import index_published, stacked, write_shard


def open_as(directory, **settings):
    """A set over a store."""
    return open_set("set", StoreSetConfig(path=str(directory), **settings), setting="data.train.0")


def exchange(path, row_bytes, first, second):
    """Swap two rows of a file."""
    content = bytearray(path.read_bytes())
    one, two = (slice(row * row_bytes, (row + 1) * row_bytes) for row in (first, second))
    content[one], content[two] = content[two], content[one]
    path.write_bytes(content)


def test_what_tensordict_wrote_is_read_bit_by_bit(published):
    found = open_as(published.directory, tsv=str(published.table), join="row")
    for row in range(len(published.ids)):
        read = found.store.read(row, layout.VIDEO_TENSORS)
        for name in layout.VIDEO_TENSORS:
            assert read[name].dtype == published.tensors[name].dtype
            assert torch.equal(read[name], published.tensors[name][row])
    assert found.ids == tuple(published.ids)
    assert found.has_video and not found.store.has_checksums
    assert "without checksums" in " ".join(found.report.notes)


def test_a_store_without_ids_is_joined_by_row_only_where_that_is_asked_for(published):
    with pytest.raises(DataError, match=r"holds no ids.*data\.train\.0\.join=row"):
        open_as(published.directory, tsv=str(published.table))
    with pytest.raises(DataError, match="needs data.train.0.tsv"):
        open_as(published.directory, join="row")
    short = published.table.with_name("short.tsv")
    short.write_text("".join(published.table.open(encoding="utf-8").readlines()[:-1]))
    with pytest.raises(DataError, match="5 clips, .* 6 rows"):
        open_as(published.directory, tsv=str(short), join="row")


def test_once_indexed_the_order_of_the_table_changes_nothing(published):
    index_published(published.directory, read_table(published.table))
    header, *lines = published.table.read_text(encoding="utf-8").splitlines()
    assert lines != sorted(lines)
    shuffled = published.table.with_name("shuffled.tsv")
    shuffled.write_text("\n".join([header, *sorted(lines)]) + "\n", encoding="utf-8")
    one = StoreDataset([open_as(published.directory, tsv=str(published.table))])
    other = StoreDataset([open_as(published.directory, tsv=str(shuffled))])
    for index, name in enumerate(published.ids):
        for item in (one[index], other[index]):
            assert item.id == f"set/{name}"
            assert item.caption == f"label of {name}"
            assert torch.equal(item.mean, published.tensors["mean"][index])
    assert one.resume_fingerprint() == other.resume_fingerprint()


@pytest.mark.parametrize("kind", ["numbers", "texts"])
def test_ids_that_tensordict_holds_itself_are_used(published, tmp_path, kind):
    import tensordict

    if kind == "numbers":
        held, ids = torch.tensor([30, 10, 20, 50, 40, 0]), ["30", "10", "20", "50", "40", "0"]
    else:
        ids = [f"clip-{'é' * number}" for number in range(6)]
        coded = [list(name.encode().ljust(20, b"\0")) for name in ids]
        held = torch.tensor(coded, dtype=torch.uint8)
    directory = tmp_path / "own-ids"
    tensors = {**published.tensors, "id": held}
    tensordict.TensorDict(tensors, batch_size=[6]).memmap_(str(directory))
    table = tmp_path / "captions.tsv"
    table.write_text(f"id\tcaption\n{ids[4]}\tfour\n{ids[1]}\tone\n", encoding="utf-8")
    found = open_as(directory, tsv=str(table))
    assert [*zip(found.ids, found.texts, found.positions.tolist(), strict=True)] == [
        (ids[1], "one", 1),
        (ids[4], "four", 4),
    ]
    assert "4 clips of" in " ".join(found.report.notes)


def test_one_flipped_byte_is_found_when_its_clip_is_read_and_by_verification(published):
    index_published(published.directory, read_table(published.table))
    assert not verify_store(published.directory).problems
    path = layout.tensor_path(published.directory, "sync_features")
    content = bytearray(path.read_bytes())
    row_bytes = len(content) // len(published.ids)
    content[2 * row_bytes + 5] ^= 1
    path.write_bytes(content)
    (problem,) = verify_store(published.directory).problems
    assert (problem.kind, problem.tensor, problem.id) == (
        "changed",
        "sync_features",
        repr(published.ids[2]),
    )
    data = StoreDataset([open_as(published.directory)])
    assert data[1].sync is not None
    with pytest.raises(DataError, match=rf"{published.ids[2]}.*sync_features is not what was"):
        data[2]
    assert StoreDataset(data.sets, check=False)[2].sync is not None


def test_exchanged_rows_are_named_with_the_clip_that_they_hold(published):
    index_published(published.directory, read_table(published.table))
    stored = layout.read_layout(published.directory)["text_features"]
    exchange(stored.path, stored.row_bytes, 1, 4)
    found = verify_store(published.directory)
    one, two = published.ids[1], published.ids[4]
    assert found.counts == {"exchanged": 2}
    assert f"should hold clip '{one}', holds clip '{two}'" in found.problems[0].message
    assert f"should hold clip '{two}', holds clip '{one}'" in found.problems[1].message
    with pytest.raises(DataError, match="rows were exchanged"):
        StoreDataset([open_as(published.directory)])[4]


def test_exchanged_ids_are_found_at_open(published):
    index_published(published.directory, read_table(published.table))
    rows = published.directory / "rows.tsv"
    text = rows.read_text(encoding="utf-8")
    one, two = published.ids[:2]
    rows.write_text(text.replace(one, "?").replace(two, one).replace("?", two), encoding="utf-8")
    with pytest.raises(DataError, match=r"rows\.tsv: changed since"):
        open_as(published.directory)


def test_a_missing_modality_is_named(published):
    for name in ("clip_features", "text_features"):
        document = json.loads((published.directory / "meta.json").read_text())
        entry = document.pop(name)
        (published.directory / "meta.json").write_text(json.dumps(document))
        with pytest.raises(DataError, match=f"{name}: missing; the store has"):
            open_as(published.directory, kind="video", tsv=str(published.table), join="row")
        document[name] = entry
        (published.directory / "meta.json").write_text(json.dumps(document))
    layout.tensor_path(published.directory, "sync_features").unlink()
    with pytest.raises(DataError, match=r"sync_features\.memmap: missing"):
        open_as(published.directory, tsv=str(published.table), join="row")


def test_half_a_video_is_an_error_and_none_is_an_audio_set(published):
    document = json.loads((published.directory / "meta.json").read_text())
    del document["clip_features"]
    (published.directory / "meta.json").write_text(json.dumps(document))
    given = {"tsv": str(published.table), "join": "row"}
    with pytest.raises(DataError, match=r"sync_features without .* data\.train\.0\.kind=audio"):
        open_as(published.directory, **given)
    assert not open_as(published.directory, kind="audio", **given).has_video
    del document["sync_features"]
    (published.directory / "meta.json").write_text(json.dumps(document))
    found = open_as(published.directory, **given)
    item = StoreDataset([found])[0]
    assert item.clip is None and item.sync is None


def test_shapes_dtypes_and_cut_files_are_named_at_open(published):
    expected = {"mean": (9, 3), "text_features": (2, 4)}
    with pytest.raises(DataError, match=r"mean: a clip has the shape \[5, 3\]; expected \[9, 3\]"):
        open_store(published.directory, expected=expected)
    document = json.loads((published.directory / "meta.json").read_text())
    document["mean"]["dtype"] = "torch.complex64"
    (published.directory / "meta.json").write_text(json.dumps(document))
    with pytest.raises(DataError, match="mean has the dtype torch.complex64"):
        open_store(published.directory)
    document["mean"]["dtype"] = "torch.int32"
    (published.directory / "meta.json").write_text(json.dumps(document))
    with pytest.raises(DataError, match="mean: torch.int32; expected floating-point"):
        open_store(published.directory)
    document["mean"]["dtype"] = "torch.float32"
    (published.directory / "meta.json").write_text(json.dumps(document))
    path = layout.tensor_path(published.directory, "std")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"std\.memmap: 359 bytes; .* needs 360"):
        open_store(published.directory)


def test_captions_may_hold_quotes_and_backslashes(published):
    said = ['a "loud" bang', '"', "back\\slash", "it's", "", "x"]
    table = published.table.with_name("quoted.tsv")
    lines = [f"{name}\t{text}" for name, text in zip(published.ids, said, strict=True)]
    table.write_text("\n".join(["id\tcaption", *lines]) + "\n", encoding="utf-8")
    index_published(published.directory, read_table(table))
    assert list(open_store(published.directory).texts) == said


def test_a_file_that_is_cut_later_is_an_error_and_no_garbage(published):
    found = open_as(published.directory, tsv=str(published.table), join="row")
    path = layout.tensor_path(published.directory, "mean")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DataError, match="cut after the store was opened"):
        found.store.read(3, ["mean"])


def test_memory_does_not_grow_with_the_store(tmp_path):
    clips, shape = 400, (250, 160)
    document = {
        name: {"shape": [clips, *shape], "dtype": "torch.float32"}
        for name in ("mean", "std", "text_features")
    }
    (tmp_path / "meta.json").write_text(json.dumps(document))
    for name in document:
        with (tmp_path / f"{name}.memmap").open("wb") as file:
            file.truncate(clips * shape[0] * shape[1] * 4)  # 64 MB that take no disk
    tracemalloc.start()
    store = open_store(tmp_path)
    for row in range(0, clips, 40):
        store.read(row, ("mean", "std", "text_features"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000


def test_a_shard_of_ours_is_what_tensordict_loads(published, tmp_path):
    import tensordict

    rows = [{name: tensor[row] for name, tensor in published.tensors.items()} for row in range(6)]
    clips = [(name, "") for name in published.ids]
    write_shard(tmp_path / "shard", clips, stacked(rows))
    loaded = tensordict.TensorDict.load_memmap(str(tmp_path / "shard"))
    assert loaded.batch_size == torch.Size([6])
    for name, tensor in published.tensors.items():
        assert torch.equal(loaded[name], tensor)
