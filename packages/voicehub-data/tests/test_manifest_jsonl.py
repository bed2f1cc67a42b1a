"""JSON-lines manifests: fields, paths, ids, and everything that can be wrong with a row."""

from __future__ import annotations

from pathlib import Path

import pytest

from voicehub.errors import ConfigurationError, DataError
from voicehub_data.config import DataSourceConfig
from voicehub_data.manifest import read_manifest, rows_digest


def test_fields_become_a_row(write_jsonl, tmp_path):
    path = write_jsonl(
        [
            {
                "id": "a",
                "audio_filepath": "clips/a.wav",
                "duration": 1.25,
                "text": "hello",
                "speaker": "s1",
                "offset": 0.5,
                "lang": "en",
                "score": 3,
            }
        ]
    )
    manifest = read_manifest(path)
    (row,) = manifest
    assert row.id == "a"
    assert row.audio_filepath == tmp_path / "clips/a.wav"
    assert (row.duration, row.offset, row.is_segment) == (1.25, 0.5, True)
    assert (row.text, row.speaker, row.language) == ("hello", "s1", "en")
    assert (row.source, row.row) == (path, 1)
    assert row.extra == {"score": 3}
    assert manifest.kind == "jsonl"
    assert manifest.total_seconds == 1.25


def test_absolute_paths_and_audio_root(write_jsonl, tmp_path):
    path = write_jsonl([{"audio_filepath": "/corpus/a.wav"}, {"audio_filepath": "b.wav"}])
    rows = read_manifest({"path": str(path), "audio_root": "/elsewhere"}).rows
    assert rows[0].audio_filepath == Path("/corpus/a.wav")
    assert rows[1].audio_filepath == Path("/elsewhere/b.wav")


def test_missing_ids_are_derived_and_unique(write_jsonl):
    path = write_jsonl(
        [
            {"audio_filepath": "x/a.wav"},
            {"audio_filepath": "x/a.wav", "offset": 1.5, "duration": 1},
            {"audio_filepath": "x/b.wav"},
            {"audio_filepath": "x/b.wav"},
        ]
    )
    assert [row.id for row in read_manifest(path)] == ["x/a", "x/a@1.5", "x/b#3", "x/b#4"]


def test_column_map(write_jsonl):
    path = write_jsonl([{"wav": "a.wav", "sentence": "hi", "len": "2.5"}])
    mapping = {"audio_filepath": "wav", "text": "sentence", "duration": "len"}
    (row,) = read_manifest(path, column_map=mapping)
    assert (row.audio_filepath.name, row.text, row.duration) == ("a.wav", "hi", 2.5)


@pytest.mark.parametrize(
    ("column_map", "words"),
    [
        ({"audio_filepath": "wavv"}, ["no column 'wavv'", "Did you mean 'wav'?", "wav, text"]),
        ({"audio_filepth": "wav"}, ["unknown field", "Did you mean 'audio_filepath'?"]),
    ],
)
def test_column_map_names_what_does_not_exist(write_jsonl, column_map, words):
    path = write_jsonl([{"wav": "a.wav", "text": "hi"}])
    with pytest.raises(ConfigurationError) as error:
        read_manifest(path, column_map=column_map)
    for word in words:
        assert word in str(error.value)


GOOD = {"audio_filepath": "good.wav"}


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("{not json", "not JSON"),
        ("[1, 2]", "expected one JSON object"),
        ("[{", "a JSON array"),
        ('"text"', "expected one JSON object"),
        ({"text": "no path"}, "no audio_filepath"),
        ({"audio_filepath": ""}, "no audio_filepath"),
        ({"audio_filepath": 7}, "expected a path as text"),
        ({"audio_filepath": "s3://bucket/a.wav"}, "remote address"),
        ({"audio_filepath": "a\0.wav"}, "NUL"),
        ({**GOOD, "duration": -1}, "duration is -1; expected seconds >= 0"),
        ({**GOOD, "duration": 0}, "expected seconds > 0"),
        ({**GOOD, "duration": "long"}, "duration is 'long'"),
        ({**GOOD, "duration": True}, "duration is True"),
        ('{"audio_filepath": "a.wav", "duration": NaN}', "finite"),
        ('{"audio_filepath": "a.wav", "offset": Infinity}', "finite"),
        ({**GOOD, "offset": -0.5}, "offset is -0.5"),
        ({**GOOD, "text": ["a"]}, "text is ['a']; expected text"),
        ({**GOOD, "id": {}}, "id is {}; expected text"),
    ],
)
def test_bad_rows_are_named_and_never_skipped(write_jsonl, bad, words):
    path = write_jsonl([GOOD, bad])
    with pytest.raises(DataError) as error:
        read_manifest(path)
    message = str(error.value)
    assert str(path) in message
    assert "1 of 2 rows" in message
    assert "row 2: " in message
    assert words in message
    lenient = read_manifest(path, strict=False)
    assert [row.audio_filepath.name for row in lenient] == ["good.wav"]
    assert [problem.row for problem in lenient.problems] == [2]


def test_rows_under_other_names_are_told_how_to_map_them(write_jsonl):
    path = write_jsonl([{"path": "good.wav", "sentence": "hi"}])
    with pytest.raises(DataError) as error:
        read_manifest(path)
    message = str(error.value)
    assert "no audio_filepath among its keys; they are path, sentence." in message
    assert "column_map: {audio_filepath: path, text: sentence}" in message
    assert "--column-map audio_filepath=path --column-map text=sentence" in message
    mapped = {"audio_filepath": "path", "text": "sentence"}
    assert [row.text for row in read_manifest(path, column_map=mapped)] == ["hi"]


def test_only_the_first_problems_are_listed(write_jsonl):
    path = write_jsonl(["x"] * 8)
    with pytest.raises(DataError, match=r"8 of 8 rows(.|\n)*and 3 more"):
        read_manifest(path)


def test_duplicate_ids(write_jsonl):
    path = write_jsonl([{"id": "a", **GOOD}, {"id": "b", **GOOD}, {"id": "a", **GOOD}])
    with pytest.raises(DataError, match="row 3: id 'a' is taken by row 1"):
        read_manifest(path)
    lenient = read_manifest(path, strict=False)
    assert len(lenient) == 3
    assert [problem.kind for problem in lenient.problems] == ["duplicate-id"]


def test_byte_order_mark_and_crlf(tmp_path):
    path = tmp_path / "dos.jsonl"
    lines = '{"audio_filepath": "a.wav", "text": "é"}\r\n\r\n{"audio_filepath": "b.wav"}\r\n'
    path.write_bytes(b"\xef\xbb\xbf" + lines.encode())
    manifest = read_manifest(path)
    assert [(row.id, row.row) for row in manifest] == [("a", 1), ("b", 3)]
    assert manifest[0].text == "é"


def test_line_separators_inside_text_do_not_split_rows(tmp_path):
    path = tmp_path / "odd.jsonl"
    path.write_text('{"audio_filepath": "a.wav", "text": "a\u2028b\x85c"}\n', encoding="utf-8")
    (row,) = read_manifest(path)
    assert row.text == "a\u2028b\x85c"


def test_bytes_that_are_not_utf8_name_their_row(tmp_path):
    path = tmp_path / "latin.jsonl"
    path.write_bytes(b'{"audio_filepath": "a.wav"}\n{"audio_filepath": "b.wav", "text": "\xe9"}\n')
    with pytest.raises(DataError, match="row 2: not UTF-8: byte 0xe9"):
        read_manifest(path)


def test_utf16_is_refused(tmp_path):
    path = tmp_path / "wide.jsonl"
    path.write_text('{"audio_filepath": "a.wav"}\n', encoding="utf-16")
    with pytest.raises(DataError, match="UTF-16"):
        read_manifest(path)


@pytest.mark.parametrize("content", ["", "\n\n  \r\n", "\ufeff"])
def test_empty_manifest(tmp_path, content):
    path = tmp_path / "empty.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match="the manifest is empty"):
        read_manifest(path)


def test_missing_manifest_and_unknown_kind(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_manifest(tmp_path / "none.jsonl")
    with pytest.raises(ConfigurationError, match="kind"):
        read_manifest(tmp_path / "none.jsonl", kind="nemo")
    odd = tmp_path / "data.bin"
    odd.write_bytes(b"x")
    with pytest.raises(ConfigurationError, match="cannot tell the format"):
        read_manifest(odd)
    with pytest.raises(DataError, match="Hub, set kind=datasets"):
        read_manifest("some/dataset")


def test_a_resolved_configuration_is_accepted_again(write_jsonl):
    """It states every default, those of other kinds too."""
    path = write_jsonl([{"audio_filepath": "a.wav", "text": "a"}])
    resolved = DataSourceConfig(path=str(path)).model_dump(mode="json")
    assert "train_splits" in resolved
    assert len(read_manifest(DataSourceConfig.load(resolved)).rows) == 1


def test_settings_of_another_kind_are_refused(write_jsonl):
    path = write_jsonl([GOOD])
    with pytest.raises(ConfigurationError, match="audio_column apply to kind=datasets only"):
        read_manifest({"path": str(path), "audio_column": "speech"})


def test_digests(write_jsonl, tmp_path):
    rows = [{"id": "a", "audio_filepath": "a.wav", "text": "x"}]
    one = read_manifest(write_jsonl(rows, "one.jsonl"))
    two = read_manifest(write_jsonl(rows, "two.jsonl"))
    other = read_manifest(write_jsonl([{**rows[0], "text": "y"}], "three.jsonl"))
    assert one.digest == two.digest != other.digest
    assert rows_digest(one.rows) == rows_digest(two.rows) != rows_digest(other.rows)


def test_evaluation_subset_is_spread_and_said(write_jsonl):
    path = write_jsonl([{"audio_filepath": f"{i}.wav"} for i in range(10)])
    source = {"path": str(path), "max_eval_samples_per_dataset": 4}
    assert len(read_manifest(source, role="train")) == 10
    subset = read_manifest(source, role="eval")
    assert [row.id for row in subset] == ["0", "2", "5", "7"]
    assert subset.notes == ("max_eval_samples_per_dataset: 4 of 10 rows taken, evenly spaced",)


def test_shared_recordings(recordings):
    manifest = read_manifest(recordings / "fsdd" / "test.jsonl")
    assert len(manifest) == 300
    assert {row.text for row in manifest} >= {"zero", "nine"}
    assert all(row.audio_filepath.is_file() for row in manifest)
