"""Writing manifests and reading them back."""

from __future__ import annotations

import pytest

from voicehub.errors import ConfigurationError, DataError
from voicehub_data.manifest import (
    ManifestRow,
    read_manifest,
    read_manifests,
    rows_digest,
    write_manifest,
)


def rows(tmp_path):
    outside = tmp_path.parent / "outside.wav"
    return [
        ManifestRow("a", tmp_path / "clips/a.wav", 'say "hi", é', 1.5, speaker="s"),
        ManifestRow("b", outside, "", 0.1234567, 2.5, language="en", is_segment=True),
        ManifestRow("c", tmp_path / "c.wav", "x", extra={"age": "30"}),
    ]


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "tsv"])
def test_round_trip(tmp_path, suffix):
    written = rows(tmp_path)
    path = write_manifest(written, tmp_path / f"m.{suffix}")
    read = read_manifest(path).rows
    assert rows_digest(read) == rows_digest(written)
    assert [row.audio_filepath for row in read] == [row.audio_filepath for row in written]
    # An empty cell of a table is no offset; JSON keeps the difference anyway.
    assert [row.is_segment for row in read] == [False, True, False]
    assert "clips/a.wav" in path.read_text(encoding="utf-8")
    assert str(tmp_path / "clips") not in path.read_text(encoding="utf-8")


def test_existing_files_are_kept(tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_text("precious")
    with pytest.raises(DataError, match="the file exists"):
        write_manifest(rows(tmp_path), path)
    assert path.read_text() == "precious"
    write_manifest(rows(tmp_path), path, overwrite=True)
    assert len(read_manifest(path)) == 3


def test_what_cannot_be_written(tmp_path):
    with pytest.raises(ConfigurationError, match=r"write a \.jsonl"):
        write_manifest(rows(tmp_path), tmp_path / "m.txt")
    tabbed = [ManifestRow("a", tmp_path / "a.wav", "tab\there")]
    with pytest.raises(DataError, match="a tab or a line break"):
        write_manifest(tabbed, tmp_path / "m.tsv")
    assert not (tmp_path / "m.tsv").exists()
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        write_manifest(rows(tmp_path), blocked / "m.jsonl")


def test_join(write_jsonl):
    one = write_jsonl([{"id": "a", "audio_filepath": "1.wav"}], "one.jsonl")
    two = write_jsonl([{"id": "b", "audio_filepath": "2.wav"}], "two.jsonl")
    three = write_jsonl(
        [{"id": "a", "audio_filepath": "3.wav"}, {"id": "c", "audio_filepath": "4.wav"}],
        "three.jsonl",
    )
    joined = read_manifests([one, {"path": str(two)}, three])
    assert [row.id for row in joined] == ["a", "b", "three:a", "three:c"]
    assert [row.audio_filepath.name for row in joined] == ["1.wav", "2.wav", "3.wav", "4.wav"]
    assert joined.notes == (f"{three}: ids occur in an earlier source; 'three:' put in front",)
    assert joined.digest != read_manifests([two, one, three]).digest
    assert read_manifests([one]) == read_manifest(one)
    thrice = read_manifests([one, one, one])
    assert [row.id for row in thrice] == ["a", "one:a", "one.2:a"]
    with pytest.raises(DataError, match="no data source"):
        read_manifests([])
