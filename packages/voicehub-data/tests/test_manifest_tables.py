"""CSV, TSV, LJSpeech and Common Voice."""

from __future__ import annotations

import pytest

from voicehub.errors import ConfigurationError, DataError
from voicehub_data.manifest import read_manifest


def test_csv_with_quotes_and_line_breaks(tmp_path):
    path = tmp_path / "m.csv"
    path.write_text(
        'audio_filepath,duration,text\na.wav,1.5,"one, two"\nb.wav,,"line\nbreak"\nc.wav,2,three\n'
    )
    rows = read_manifest(path).rows
    assert [(row.row, row.text, row.duration) for row in rows] == [
        (2, "one, two", 1.5),
        (3, "line\nbreak", None),
        (5, "three", 2.0),
    ]


def test_csv_column_map_and_extra(tmp_path):
    path = tmp_path / "m.csv"
    path.write_text("file,transcript,age\na.wav,hi,30\n")
    (row,) = read_manifest(path, column_map={"audio_filepath": "file", "text": "transcript"})
    assert (row.text, row.extra) == ("hi", {"age": "30"})


def test_csv_without_a_path_column_lists_columns(tmp_path):
    path = tmp_path / "m.csv"
    path.write_text("file,transcript\na.wav,hi\n")
    with pytest.raises(ConfigurationError, match="its columns are file, transcript"):
        read_manifest(path)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("a.wav,1", "2 cells, the header has 3"),
        ("a.wav,1,x,y", "4 cells, the header has 3"),
        ('a.wav,1,"open', "quotation mark"),
        ("a.wav,fast,x", "duration is 'fast'"),
    ],
)
def test_bad_csv_rows(tmp_path, line, words):
    path = tmp_path / "m.csv"
    path.write_text(f"audio_filepath,duration,text\nz.wav,1,x\n{line}\n")
    with pytest.raises(DataError) as error:
        read_manifest(path)
    assert "row 3: " in str(error.value)
    assert words in str(error.value)


def test_csv_non_utf8_row(tmp_path):
    path = tmp_path / "m.csv"
    path.write_bytes(b"audio_filepath,text\na.wav,caf\xe9\nb.wav,ok\n")
    manifest = read_manifest(path, strict=False)
    assert [row.id for row in manifest] == ["b"]
    assert "not UTF-8" in manifest.problems[0].message


def test_repeated_column(tmp_path):
    path = tmp_path / "m.csv"
    path.write_text("audio_filepath,text,text\na.wav,x,y\n")
    with pytest.raises(DataError, match="two columns are named 'text'"):
        read_manifest(path)


def test_tsv_takes_quotes_as_they_are(tmp_path):
    path = tmp_path / "m.tsv"
    path.write_text('audio_filepath\ttext\na.wav\t"unbalanced\nb.wav\tsecond\n')
    rows = read_manifest(path).rows
    assert [row.text for row in rows] == ['"unbalanced', "second"]


@pytest.mark.parametrize(("name", "separator"), [("m.tsv", "\t"), ("m.csv", ",")])
def test_tables_written_on_windows(tmp_path, name, separator):
    lines = [("audio_filepath", "text"), ("a.wav", "one"), ("b.wav", "two")]
    text = "".join(separator.join(cells) + "\r\n" for cells in lines)
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert [(row.id, row.text) for row in read_manifest(tmp_path / name)] == [
        ("a", "one"),
        ("b", "two"),
    ]


def test_ljspeech(tmp_path, write_audio):
    write_audio("wavs/LJ-1.wav", 0.2)
    write_audio("wavs/LJ-2.flac", 0.2)
    (tmp_path / "metadata.csv").write_text(
        'LJ-1|In 1452|In fourteen fifty-two\nLJ-2|He said "no|He said "no\nLJ-3|gone|gone\n'
    )
    rows = read_manifest(tmp_path).rows
    assert [row.audio_filepath.name for row in rows] == ["LJ-1.wav", "LJ-2.flac", "LJ-3.wav"]
    assert [row.text for row in rows] == ["In fourteen fifty-two", 'He said "no', "gone"]
    assert rows[0].extra == {"raw_text": "In 1452"}
    assert read_manifest(tmp_path / "metadata.csv").rows == rows
    assert read_manifest(tmp_path).kind == "ljspeech"


def test_ljspeech_bad_line_and_folder(tmp_path, write_audio):
    (tmp_path / "metadata.csv").write_text("a|b|c|d\n")
    with pytest.raises(DataError, match="no folder wavs"):
        read_manifest(tmp_path)
    write_audio("wavs/a.wav", 0.1)
    with pytest.raises(DataError, match=r"row 1: 4 fields between '\|'"):
        read_manifest(tmp_path)


COMMON_VOICE = (
    "client_id\tpath\tsentence\tup_votes\tlocale\n"
    "c1\tcv_1.mp3\tHello there.\t2\ten\n"
    'c2\tcv_2.mp3\t"She said ""yes""."\t2\ten\n'
    'c2\tcv_3.mp3\t"Quoted whole"\t2\ten\n'
)


def test_common_voice(tmp_path):
    (tmp_path / "train.tsv").write_text(COMMON_VOICE)
    (tmp_path / "clip_durations.tsv").write_text("clip\tduration[ms]\ncv_1.mp3\t1500\n")
    manifest = read_manifest(tmp_path / "train.tsv")
    assert manifest.kind == "commonvoice"
    first, second, third = manifest
    assert first.audio_filepath == tmp_path / "clips" / "cv_1.mp3"
    assert (first.text, first.speaker, first.language) == ("Hello there.", "c1", "en")
    assert (first.duration, second.duration) == (1.5, None)
    assert second.text == 'She said "yes".'
    assert third.text == '"Quoted whole"'
    assert first.extra == {"up_votes": "2"}


def test_common_voice_with_bad_durations(tmp_path):
    (tmp_path / "train.tsv").write_text(COMMON_VOICE)
    (tmp_path / "clip_durations.tsv").write_text("clip\tduration[ms]\ncv_1.mp3\tlong\n")
    with pytest.raises(DataError, match="row 2: expected a file name and milliseconds"):
        read_manifest(tmp_path / "train.tsv")
