"""Files of embeddings through readers of others, and what is wrong with a file."""

from __future__ import annotations

import csv
import shutil

import numpy as np
import pytest

from voicehub.errors import ConfigurationError, DataError, OptionalDependencyError
from voicehub_xvector.embeddings import FORMATS, EmbeddingTable, files, read_embeddings
from voicehub_xvector.embeddings.files import write_embeddings


@pytest.fixture
def table():
    vectors = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)
    return EmbeddingTable.of(
        ["a", "b/c.wav", "d", "é", "e"],
        vectors,
        durations=[1.25, 0.1, 3.0, np.nan, 2.0],
        speakers=["s1", "s2", "s1", "", "s, 3"],
        audio_filepaths=["/x/a.wav", "/x/b c.wav", "", "/é.wav", "/x/e.wav"],
    )


@pytest.mark.parametrize("name", FORMATS)
def test_come_back_as_they_were(table, tmp_path, name):
    if name == "parquet":
        pytest.importorskip("pyarrow")
    write_embeddings(table, tmp_path, name)
    back = read_embeddings(tmp_path)
    assert back.ids == table.ids and np.array_equal(back.vectors, table.vectors)
    assert np.allclose(back.durations, table.durations, rtol=1e-8, equal_nan=True)
    if name != "ark,scp":  # has no place for them
        assert (back.speakers, back.audio_filepaths) == (table.speakers, table.audio_filepaths)


def test_kaldis_reader_reads_the_archive_the_list_and_the_table(table, tmp_path):
    kaldiio = pytest.importorskip("kaldiio")
    write_embeddings(table, tmp_path / "scp", "ark,scp")
    read = dict(kaldiio.load_ark(str(tmp_path / "scp/embeddings.ark")))
    assert list(read) == list(table.ids)
    pointed = kaldiio.load_scp(str(tmp_path / "scp/embeddings.scp"))
    for key, vector in zip(table.ids, table.vectors, strict=True):
        assert np.array_equal(read[key], vector) and np.array_equal(pointed[key], vector)
    durations = (tmp_path / "scp/embeddings.utt2dur").read_text().splitlines()
    assert durations == ["a 1.25", "b/c.wav 0.1", "d 3", "e 2"]
    write_embeddings(table, tmp_path / "csv", "ark,csv")
    with (tmp_path / "csv/embeddings.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row, key, vector in zip(rows, table.ids, table.vectors, strict=True):
        archive = tmp_path / "csv" / row["storage_path"]
        assert row["id"] == key
        assert np.array_equal(kaldiio.load_mat(f"{archive}:{row['storage_byte']}"), vector)
    assert [row["duration"] for row in rows] == ["1.25", "0.1", "3", "", "2"]


def test_numpy_and_pyarrow_read_the_others(table, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    write_embeddings(table, tmp_path, "npz")
    with np.load(tmp_path / "embeddings.npz", allow_pickle=False) as arrays:
        assert arrays["ids"].tolist() == list(table.ids)
        assert np.array_equal(arrays["embeddings"], table.vectors)
    write_embeddings(table, tmp_path, "parquet")
    read = parquet.read_table(tmp_path / "embeddings.parquet")
    assert read["id"].to_pylist() == list(table.ids)
    assert np.array_equal(np.array(read["embedding"].to_pylist(), np.float32), table.vectors)
    assert read["duration"].to_pylist() == [1.25, 0.1, 3.0, None, 2.0]


def test_an_archive_of_a_foreign_writer_is_read(table, tmp_path):
    kaldiio = pytest.importorskip("kaldiio")
    vectors = dict(zip(table.ids, table.vectors, strict=True))
    with kaldiio.WriteHelper(f"ark,scp:{tmp_path}/embeddings.ark,{tmp_path}/x.scp") as writer:
        for key, vector in vectors.items():
            writer(key, vector.astype(np.float64) if key == "d" else vector)
    back = read_embeddings(tmp_path / "x.scp")
    assert back.ids == table.ids and np.allclose(back.vectors, table.vectors)
    assert np.isnan(back.durations).all()


@pytest.mark.parametrize("name", ["ark,csv", "ark,scp"])
def test_a_directory_may_move(table, tmp_path, name):
    write_embeddings(table, tmp_path / "old", name)
    shutil.move(tmp_path / "old", tmp_path / "new")
    assert np.array_equal(read_embeddings(tmp_path / "new").vectors, table.vectors)


def test_ids_that_kaldi_cannot_hold_are_refused(table, tmp_path):
    spaced = EmbeddingTable.of(["a b"], table.vectors[:1])
    with pytest.raises(DataError, match="'a b' cannot be a key of a Kaldi archive"):
        write_embeddings(spaced, tmp_path, "ark,csv")
    write_embeddings(spaced, tmp_path, "npz")
    assert read_embeddings(tmp_path).ids == ("a b",)


def test_formats_are_checked_before_work(monkeypatch):
    with pytest.raises(ConfigurationError, match="Did you mean 'parquet'"):
        files.check_format("parket")
    monkeypatch.setattr(files, "find_spec", lambda name: None)
    with pytest.raises(OptionalDependencyError, match=r"voicehub-xvector\[parquet\]"):
        files.check_format("parquet")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: (d / "embeddings.ark").unlink(), r"embeddings.csv, row 2: no archive"),
        (
            lambda d: (d / "embeddings.ark").write_bytes((d / "embeddings.ark").read_bytes()[:-4]),
            "row 6: .* ends within the vector",
        ),
        (
            lambda d: (d / "embeddings.csv").write_text("id,storage_path,storage_byte\na,x.ark,z"),
            "row 2: expected a position in bytes, got 'z'",
        ),
        (
            lambda d: (d / "embeddings.csv").write_text(
                "id,storage_path,storage_byte\na,embeddings.ark,3"
            ),
            "row 2: no binary Kaldi vector at byte 3",
        ),
        (lambda d: (d / "embeddings.csv").write_text("id,x\na,b"), "no column storage_byte, stor"),
        (lambda d: (d / "embeddings.csv").unlink(), "expected one file of embeddings, found none"),
        (
            lambda d: (d / "embeddings.npz").write_bytes(b"x"),
            "found embeddings.csv, embeddings.npz",
        ),
    ],
)
def test_damage_is_told_with_file_and_row(table, tmp_path, change, message):
    write_embeddings(table, tmp_path, "ark,csv")
    change(tmp_path)
    with pytest.raises(DataError, match=message):
        read_embeddings(tmp_path)


def test_arrays_that_would_run_code_or_make_no_sense_are_refused(tmp_path):
    path = tmp_path / "embeddings.npz"
    np.savez(path, ids=np.array([{"a": 1}], dtype=object), embeddings=np.zeros((1, 2)))
    with pytest.raises(DataError, match="not a readable .npz file"):
        read_embeddings(path)
    for arrays, message in (
        ({"ids": ["a", "a"], "embeddings": np.zeros((2, 3))}, "the id 'a' appears twice"),
        (
            {"ids": ["a"], "embeddings": np.zeros((2, 3))},
            r"1 ids with embeddings of shape \(2, 3\)",
        ),
        ({"ids": ["a"], "embeddings": np.full((1, 3), np.nan)}, "of 'a' is not finite"),
        ({"ids": ["a"]}, "needs arrays 'ids' and 'embeddings'"),
    ):
        np.savez(path, **arrays)
        with pytest.raises(DataError, match=message):
            read_embeddings(path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut short"])
def test_a_half_written_archive_of_arrays_is_refused(tmp_path, content):
    (tmp_path / "embeddings.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"embeddings\.npz: not a readable \.npz file"):
        read_embeddings(tmp_path)


@pytest.mark.parametrize("name", ["embeddings.csv", "embeddings.scp"])
def test_text_that_is_not_utf_8_is_refused(tmp_path, name):
    (tmp_path / name).write_bytes("é x.ark:3".encode("latin-1"))
    with pytest.raises(DataError, match=f"{name}: not UTF-8 text, from byte 0 on"):
        read_embeddings(tmp_path)


def test_a_table_that_a_spreadsheet_saved_is_read(table, tmp_path):
    write_embeddings(table, tmp_path, "ark,csv")
    path = tmp_path / "embeddings.csv"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert read_embeddings(tmp_path).ids == table.ids
