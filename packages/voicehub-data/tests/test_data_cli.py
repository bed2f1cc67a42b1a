"""``voicehub data``: exit codes, the last line of JSON, and what is printed for a person."""

from __future__ import annotations

import json

import numpy as np
import pytest
import soundfile

from voicehub.cli.app import run
from voicehub_data.manifest import read_manifest


@pytest.fixture
def voicehub(capsys):
    """``voicehub(*arguments)`` -> exit code, standard output, standard error."""

    def call(*arguments):
        code = run(["data", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def last_json(text):
    return json.loads(text.strip().splitlines()[-1])


@pytest.fixture
def corpus(write_jsonl, write_audio):
    rows = []
    for i in range(3):
        write_audio(f"{i}.wav", 1.0 + i, 8000, seed=i)
        rows.append(
            {"id": f"u{i}", "audio_filepath": f"{i}.wav", "text": "hi there", "speaker": "s"}
        )
    return write_jsonl(rows)


class TestCheck:
    def test_sound(self, voicehub, corpus):
        code, out, _ = voicehub("check", corpus)
        assert code == 0
        assert "3 rows, 3 files (decoded); 3 rows usable" in out
        assert out.endswith("No errors.\n")

    def test_findings(self, voicehub, corpus, write_audio, write_jsonl, tmp_path):
        write_audio("loud.wav", np.ones(8000, np.float32), 8000)
        (tmp_path / "zero.wav").write_bytes(b"")
        path = write_jsonl(
            [
                {"audio_filepath": "0.wav", "text": "a"},
                {"audio_filepath": "loud.wav", "text": "a"},
                {"audio_filepath": "zero.wav", "text": "a"},
                "{",
            ],
            "bad.jsonl",
        )
        report = tmp_path / "out" / "findings.jsonl"
        code, out, _ = voicehub("check", path, "--json", "--report", report)
        result = last_json(out)
        assert code == 1
        assert result["ok"] is False
        assert (result["rows"], result["rows_ok"]) == (4, 2)
        assert result["counts"] == {"clipped": 1, "empty-file": 1, "invalid-row": 1}
        assert [f["row"] for f in result["findings"]] == [2, 3, 4]
        lines = report.read_text().splitlines()
        assert [json.loads(line)["kind"] for line in lines] == [
            "clipped",
            "empty-file",
            "invalid-row",
        ]
        code, out, _ = voicehub("check", path)
        assert code == 1
        assert f"{path}, row 3 (id 'zero'): empty-file: the file has zero bytes" in out

    def test_warnings_fail_only_when_strict(self, voicehub, corpus):
        code, out, _ = voicehub("check", corpus, "--sample-rate", 16000, "--headers-only")
        assert code == 0
        assert "wrong-rate" in out
        assert "(headers only)" in out
        assert voicehub("check", corpus, "--sample-rate", 16000, "--strict")[0] == 1

    def test_many_findings_are_counted(self, voicehub, corpus):
        _, out, _ = voicehub("check", corpus, "--sample-rate", 16000, "--show", 1)
        assert "... and 2 more wrong-rate" in out

    def test_empty_manifest_and_missing(self, voicehub, tmp_path):
        (tmp_path / "empty.jsonl").write_text("")
        code, _, err = voicehub("check", tmp_path / "empty.jsonl")
        assert code == 1
        assert "the manifest is empty" in err
        code, out, err = voicehub("check", tmp_path / "none.jsonl", "--json")
        assert code == 1
        assert last_json(out)["ok"] is False
        assert "no such file" in last_json(out)["error"]["message"]
        assert "Traceback" not in err

    def test_all_rows_unreadable(self, voicehub, write_jsonl):
        code, out, _ = voicehub("check", write_jsonl(["{", "["]), "--json")
        assert code == 1
        assert last_json(out)["counts"] == {"invalid-row": 2}


class TestWrongUse:
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (["--kind", "nemo"], "kind"),
            (["--set", "audio_rot=/x"], "Did you mean 'audio_root'"),
            (["--set", "audio_root"], "expected KEY=VALUE"),
            (["--column-map", "text"], "expected KEY=VALUE"),
            (["--column-map", "text=transcript"], "no column 'transcript'"),
            (["--role", "test"], "expected train or eval"),
            (["--set", "train_splits=[a]"], "apply to kind=datasets only"),
        ],
    )
    def test_exit_code_2(self, voicehub, corpus, options, words):
        for command in ("check", "stats"):
            code, _, err = voicehub(command, corpus, *options)
            assert code == 2
            assert words in err

    def test_unknown_option_and_command(self, voicehub, corpus):
        assert voicehub("check", corpus, "--nothing")[0] == 2
        assert voicehub("chek", corpus)[0] == 2
        assert voicehub("check")[0] == 2


class TestStats:
    def test_figures(self, voicehub, corpus):
        code, out, _ = voicehub("stats", corpus, "--json")
        result = last_json(out)
        assert code == 0
        assert (result["rows"], result["seconds"], result["words"]) == (3, 6.0, 6)
        assert (result["vocabulary"], result["repeated_texts"]) == (2, 2)
        assert result["duration"]["percentiles"]["50"] == 2.0
        assert result["characters"]["h"] == 6
        assert result["speakers"] == {"s": 6.0}
        assert result["sample_rates"] == {"8000": 3}
        assert result["formats"] == {"WAV PCM_16": 3}

    def test_text(self, voicehub, corpus):
        _, out, _ = voicehub("stats", corpus)
        for words in ("3 rows, 6 s of audio", "2 rows with a text that another row has", "median"):
            assert words in out

    def test_without_headers(self, voicehub, write_jsonl):
        path = write_jsonl([{"audio_filepath": "gone.wav", "text": "a"}])
        code, out, _ = voicehub("stats", path, "--no-headers", "--json")
        assert code == 0
        assert last_json(out)["without_duration"] == 1
        code, _, err = voicehub("stats", path)
        assert code == 1
        assert "row 1" in err


class TestConvert:
    def test_manifest(self, voicehub, corpus, tmp_path):
        out = tmp_path / "sub" / "m.csv"
        code, text, _ = voicehub("convert", corpus, out)
        assert code == 0
        assert "3 rows, 6 s" in text
        rows = read_manifest(out).rows
        assert [row.duration for row in rows] == [1.0, 2.0, 3.0]
        assert [row.audio_filepath for row in rows] == [tmp_path / f"{i}.wav" for i in range(3)]

    def test_kaldi_with_audio(self, voicehub, write_audio, tmp_path):
        write_audio("kaldi/rec.wav", 4.0, 22050)
        (tmp_path / "kaldi/wav.scp").write_text("rec rec.wav\n")
        (tmp_path / "kaldi/segments").write_text("a/1 rec 0 1.5\n../b rec 1.5 -1\n")
        (tmp_path / "kaldi/text").write_text("a/1 hello\n../b there\n")
        out = tmp_path / "new" / "m.jsonl"
        code, text, _ = voicehub(
            "convert", tmp_path / "kaldi", out, "--audio-dir", tmp_path / "new/audio",
            "--sample-rate", 16000, "--audio-format", "wav", "--json",
        )  # fmt: skip
        assert code == 0
        assert last_json(text)["rows"] == 2
        one, two = read_manifest(out)
        assert one.audio_filepath == tmp_path / "new/audio/a/1.wav"
        assert two.audio_filepath == tmp_path / "new/audio/b.wav"
        assert (one.id, two.id, two.text) == ("a/1", "../b", "there")
        assert (one.duration, two.duration, two.is_segment) == (1.5, 2.5, False)
        assert soundfile.info(one.audio_filepath).samplerate == 16000
        assert soundfile.info(two.audio_filepath).frames == 40000

    def test_nothing_is_overwritten(self, voicehub, corpus, tmp_path):
        out = tmp_path / "m.jsonl"
        out.write_text("precious")
        code, _, err = voicehub("convert", corpus, out)
        assert code == 1
        assert "--overwrite" in err
        assert out.read_text() == "precious"
        assert voicehub("convert", corpus, out, "--overwrite")[0] == 0
        arguments = ("convert", corpus, tmp_path / "n.jsonl", "--audio-dir", tmp_path / "audio")
        assert voicehub(*arguments)[0] == 0
        code, _, err = voicehub(*arguments, "--overwrite")
        assert code == 0
        (tmp_path / "n.jsonl").unlink()
        code, _, err = voicehub(*arguments)
        assert code == 1
        assert "3 of the files to write exist" in err

    def test_bad_audio_is_named_and_no_manifest_written(self, voicehub, corpus, tmp_path):
        (tmp_path / "1.wav").write_text("no audio")
        out = tmp_path / "out.jsonl"
        for extra in ([], ["--audio-dir", tmp_path / "audio"]):
            code, _, err = voicehub("convert", corpus, out, *extra)
            assert code == 1
            assert "row 2" in err
            assert not out.exists()

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (["m.txt"], "write a .jsonl"),
            (["m.jsonl", "--sample-rate", "8000"], "needs --audio-dir"),
            (["m.jsonl", "--audio-format", "mp3"], "expected flac or wav"),
        ],
    )
    def test_wrong_use(self, voicehub, corpus, tmp_path, options, words):
        code, _, err = voicehub("convert", corpus, tmp_path / options[0], *options[1:])
        assert code == 2
        assert words in err

    def test_folders_that_cannot_be_written_are_found_before_any_row(
        self, voicehub, corpus, tmp_path
    ):
        blocked = tmp_path / "file"
        blocked.touch()
        out = tmp_path / "n.jsonl"
        code, _, err = voicehub("convert", corpus, out, "--audio-dir", blocked / "audio")
        assert code == 2
        assert "--audio-dir" in err and "cannot be written" in err and "row 1" not in err
        audio = tmp_path / "audio"
        code, _, err = voicehub("convert", corpus, blocked / "n.jsonl", "--audio-dir", audio)
        assert code == 2 and "OUTPUT's folder" in err
        assert not audio.exists()

    def test_samples_beyond_full_scale_are_counted(
        self, voicehub, write_audio, write_jsonl, tmp_path
    ):
        write_audio("hot.wav", np.full(800, 1.5, np.float32), 8000, subtype="FLOAT")
        path = write_jsonl([{"audio_filepath": "hot.wav"}])
        code, out, _ = voicehub(
            "convert", path, tmp_path / "n.jsonl", "--audio-dir", tmp_path / "audio"
        )
        assert code == 0
        assert "1 of them had samples beyond full scale" in out


def test_help_lists_the_commands(voicehub):
    code, out, _ = voicehub("--help")
    assert code == 0
    for name in ("check", "stats", "convert", "synthesize"):
        assert name in out
