"""Kaldi data directories and folders of audio."""

from __future__ import annotations

import pytest

from voicehub.errors import ConfigurationError, DataError
from voicehub_data.manifest import read_manifest


def write(directory, **files):
    for name, content in files.items():
        (directory / name.replace("_", ".")).write_text(content)


def test_kaldi_with_segments(tmp_path):
    write(
        tmp_path,
        wav_scp="rec1 audio/rec1.wav\nrec2 /abs/rec 2.flac\n",
        segments="u1 rec1 0.0 1.5\nu2 rec1 1.5 4.25\nu3 rec2 2 -1\n",
        text="u1 hello there\nu2 again\nu3\n",
        utt2spk="u1 anna\nu2 anna\nu3 ben\n",
        utt2lang="u1 en\n",
    )
    manifest = read_manifest(tmp_path)
    assert manifest.kind == "kaldi"
    one, two, three = manifest
    assert one.audio_filepath == tmp_path / "audio/rec1.wav"
    assert (one.text, one.offset, one.duration, one.is_segment) == ("hello there", 0.0, 1.5, True)
    assert (two.offset, two.duration, two.speaker) == (1.5, 2.75, "anna")
    assert str(three.audio_filepath) == "/abs/rec 2.flac"
    assert (three.offset, three.duration, three.text) == (2.0, None, "")
    assert one.language == "en"
    assert (two.source.name, two.row) == ("segments", 2)


def test_kaldi_without_segments(tmp_path):
    write(tmp_path, wav_scp="u1 a.wav\nu2\tb.wav\n", text="u1 x\nu2 y\n", utt2dur="u1 1.5\n")
    one, two = read_manifest({"path": str(tmp_path), "audio_root": "/corpus"})
    assert (str(one.audio_filepath), one.duration, one.is_segment) == ("/corpus/a.wav", 1.5, False)
    assert (two.id, two.text, two.source.name) == ("u2", "y", "wav.scp")


def test_kaldi_never_runs_commands(tmp_path):
    marker = tmp_path / "ran"
    write(tmp_path, wav_scp=f"u1 touch {marker} |\nu2 b.wav\n", text="u1 x\nu2 y\n")
    with pytest.raises(DataError, match="commands are never run"):
        read_manifest(tmp_path)
    manifest = read_manifest(tmp_path, strict=False)
    assert [row.id for row in manifest] == ["u2"]
    messages = [str(problem) for problem in manifest.problems]
    assert any("wav.scp, row 1" in message for message in messages)
    assert any("'u1' has a transcript but no audio" in message for message in messages)
    assert not marker.exists()


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"wav_scp": "u1 raw.ark:15\n"}, "points into an archive"),
        ({"wav_scp": "u1\n"}, "'u1' has no path"),
        ({"wav_scp": "u1 a.wav\nu1 b.wav\n"}, "'u1' is listed twice"),
        ({"wav_scp": "r a.wav\n", "segments": "u1 q 0 1\n"}, "recording 'q' is not in wav.scp"),
        ({"wav_scp": "r a.wav\n", "segments": "u1 r 2 1\n"}, "ends at 1 s, at or before"),
        ({"wav_scp": "r a.wav\n", "segments": "u1 r -1 1\n"}, "start is -1"),
        ({"wav_scp": "r a.wav\n", "segments": "u1 r\n"}, "expected 'utt recording start end'"),
        ({"wav_scp": "u1 a.wav\n", "text": "u1 x\nu9 y\n"}, "'u9' has a transcript but no audio"),
        ({"wav_scp": "u1 a.wav\n", "utt2dur": "u1 x\n"}, "duration is 'x'"),
    ],
)
def test_kaldi_bad_entries(tmp_path, files, words):
    write(tmp_path, **files)
    with pytest.raises(DataError) as error:
        read_manifest(tmp_path, kind="kaldi")
    assert words in str(error.value)


def test_kaldi_needs_a_directory(tmp_path):
    with pytest.raises(DataError, match=r"no such manifest"):
        read_manifest(tmp_path, kind="kaldi")
    write(tmp_path, wav_scp="u1 a.wav\n")
    with pytest.raises(DataError, match="expected a Kaldi data directory"):
        read_manifest(tmp_path / "wav.scp", kind="kaldi")
    with pytest.raises(ConfigurationError, match="column_map does not apply"):
        read_manifest(tmp_path, column_map={"text": "text"})


def test_kaldi_digest_covers_every_table(tmp_path):
    write(tmp_path, wav_scp="u1 a.wav\n", text="u1 x\n")
    before = read_manifest(tmp_path).digest
    write(tmp_path, text="u1 y\n")
    assert read_manifest(tmp_path).digest != before


def test_folder(tmp_path, write_audio):
    write_audio("b/two.flac", 0.2)
    write_audio("a/one.wav", 0.2)
    write_audio("a/three.WAV", 0.2, format="WAV")
    (tmp_path / "a/one.txt").write_text("\ufeffhello\n  there\n", encoding="utf-8")
    (tmp_path / "a/notes.md").write_text("not audio")
    manifest = read_manifest(tmp_path)
    assert manifest.kind == "folder"
    assert [row.id for row in manifest] == ["a/one", "a/three", "b/two"]
    assert [row.text for row in manifest] == ["hello there", "", ""]


def test_folder_problems(tmp_path, write_audio):
    with pytest.raises(DataError, match="no audio files"):
        read_manifest(tmp_path)
    write_audio("a.wav", 0.1)
    (tmp_path / "a.txt").write_bytes(b"caf\xe9")
    with pytest.raises(DataError, match=r"transcript of a\.wav cannot be read"):
        read_manifest(tmp_path)
