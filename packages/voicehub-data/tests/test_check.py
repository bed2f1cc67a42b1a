"""The manifest check: every kind of finding, once present and once absent."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from voicehub_data.check import SEVERITIES, check_manifest
from voicehub_data.check.containers import header_problem
from voicehub_data.manifest import read_manifest


@pytest.fixture
def corpus(write_jsonl):
    """``corpus(rows)`` -> manifest read leniently; a path stands for a row of it."""

    def build(*rows):
        full = []
        for row in rows:
            row = {"audio_filepath": str(row)} if isinstance(row, Path) else row
            full.append({"text": "hello", **row} if isinstance(row, dict) else row)
        return read_manifest(write_jsonl(full), strict=False)

    return build


def kinds(report) -> list[str]:
    return [item.kind for item in report.findings]


def test_a_sound_corpus_has_no_findings(corpus, write_audio):
    paths = [write_audio(f"{i}.{s}", 1.0, seed=i) for i, s in enumerate(["wav", "flac", "ogg"])]
    report = check_manifest(corpus(*paths))
    assert report.findings == ()
    assert (report.num_rows, report.num_files, len(report.rows_ok)) == (3, 3, 3)
    assert report.seconds == 3.0


def test_finding_says_where(corpus, tmp_path, write_audio):
    manifest = corpus(write_audio("good.wav"), {"id": "x", "audio_filepath": "gone.wav"})
    (found,) = check_manifest(manifest).findings
    assert (found.row, found.id, found.kind, found.severity) == (2, "x", "missing-file", "error")
    assert (found.path, found.source) == (tmp_path / "gone.wav", manifest.path)
    assert str(found).startswith(f"{manifest.path}, row 2 (id 'x'): missing-file: no such file")
    assert found.as_dict()["path"] == str(tmp_path / "gone.wav")


@pytest.mark.parametrize("decode", [True, False])
class TestFiles:
    def test_missing_and_directory(self, corpus, tmp_path, decode):
        (tmp_path / "folder.wav").mkdir()
        manifest = corpus(tmp_path / "none.wav", tmp_path / "folder.wav")
        assert kinds(check_manifest(manifest, decode=decode)) == ["missing-file"] * 2

    def test_zero_bytes_and_zero_frames(self, corpus, tmp_path, write_audio, decode):
        (tmp_path / "zero.wav").write_bytes(b"")
        hollow = write_audio("hollow.wav", np.zeros(0, np.float32))
        manifest = corpus(tmp_path / "zero.wav", hollow)
        assert kinds(check_manifest(manifest, decode=decode)) == ["empty-file"] * 2

    def test_text_under_an_audio_name(self, corpus, tmp_path, decode):
        (tmp_path / "a.wav").write_text("hello " * 100)
        (found,) = check_manifest(corpus(tmp_path / "a.wav"), decode=decode).findings
        assert found.kind == "undecodable"
        assert found.message.startswith("not decodable as audio")

    @pytest.mark.parametrize("suffix", ["wav", "flac", "ogg"])
    def test_truncated(self, corpus, write_audio, suffix, decode):
        path = write_audio(f"a.{suffix}", 4.0)
        content = path.read_bytes()
        path.write_bytes(content[: len(content) * 2 // 3])
        assert kinds(check_manifest(corpus(path), decode=decode)) == ["truncated"]

    def test_wav_header_with_fewer_frames(self, corpus, write_audio, decode):
        path = write_audio("a.wav", 1.0)
        set_wav_data_size(path, 1000)
        assert "wrong-header" in kinds(check_manifest(corpus(path), decode=decode))

    def test_flac_header_with_other_frames(self, corpus, write_audio, decode):
        less, more = write_audio("less.flac", 1.0, seed=1), write_audio("more.flac", 1.0, seed=2)
        set_flac_total(less, 9000)
        set_flac_total(more, 20000)
        report = check_manifest(corpus(less, more), decode=decode)
        assert kinds(report) == ["wrong-header", "truncated"]

    def test_wrong_rate(self, corpus, write_audio, decode):
        paths = [write_audio(f"{i}.wav", 1.0, 16000, seed=i) for i in range(2)]
        odd = write_audio("odd.wav", 1.0, 8000)
        report = check_manifest(corpus(*paths, odd), decode=decode)
        assert [(item.row, item.kind) for item in report.findings] == [(3, "wrong-rate")]
        assert len(report.rows_ok) == 3
        stated = check_manifest(corpus(*paths, odd), sample_rate=8000, decode=decode)
        assert [item.row for item in stated.findings] == [1, 2]
        assert "16000 Hz, expected 8000" in stated.findings[0].message

    def test_eight_channels(self, corpus, write_audio, make_speech, decode):
        path = write_audio("a.wav", np.stack([make_speech()] * 8, 1))
        (found,) = check_manifest(corpus(path), decode=decode).findings
        assert (found.kind, found.severity) == ("multi-channel", "warning")
        assert found.message.startswith("8 channels")

    def test_very_short(self, corpus, write_audio, decode):
        path = write_audio("a.wav", 0.01)
        assert kinds(check_manifest(corpus(path), decode=decode)) == ["very-short"]

    def test_duplicate_content(self, corpus, write_audio, decode):
        first = write_audio("a.wav", 1.0, seed=1)
        other = write_audio("other.wav", 1.0, seed=2)
        copy = write_audio("copy.wav", 1.0, seed=1)
        report = check_manifest(corpus(first, other, copy), decode=decode)
        (found,) = report.findings
        assert (found.row, found.kind) == (3, "duplicate-content")
        assert "same audio as row 1" in found.message

    def test_same_segment_twice(self, corpus, write_audio, decode):
        path = str(write_audio("a.wav", 2.0))
        row = {"audio_filepath": path, "offset": 0.5, "duration": 1.0}
        other = {"audio_filepath": path, "offset": 1.0, "duration": 1.0}
        report = check_manifest(corpus(row, other, row), decode=decode)
        assert [(item.row, item.kind) for item in report.findings] == [(3, "duplicate-content")]

    @pytest.mark.parametrize(
        ("row", "kind"),
        [
            ({"duration": 3.0}, "duration-mismatch"),
            ({"duration": 1.0}, "duration-mismatch"),
            ({"duration": 2.04}, None),
            ({"duration": 1.0, "offset": 0.0}, None),
            ({"duration": 1.0, "offset": 1.0}, None),
            ({"duration": 1.5, "offset": 1.0}, "offset-past-end"),
            ({"offset": 2.0}, "offset-past-end"),
            ({"offset": 7.0, "duration": 1.0}, "offset-past-end"),
        ],
    )
    def test_durations_and_offsets(self, corpus, write_audio, row, kind, decode):
        path = write_audio("a.wav", 2.0)
        report = check_manifest(corpus({"audio_filepath": str(path), **row}), decode=decode)
        assert kinds(report) == ([] if kind is None else [kind])


class TestSamples:
    def test_not_finite(self, corpus, write_audio, make_speech):
        samples = make_speech()
        samples[100] = np.nan
        path = write_audio("a.wav", samples, subtype="FLOAT")
        assert kinds(check_manifest(corpus(path))) == ["non-finite"]
        assert kinds(check_manifest(corpus(path), decode=False)) == []

    def test_clipped(self, corpus, write_audio, make_speech):
        loud = np.clip(make_speech() * 8, -1, 1)
        report = check_manifest(corpus(write_audio("a.wav", loud)))
        assert kinds(report) == ["clipped"]
        assert "% of the samples at full scale" in report.findings[0].message

    def test_full_scale_peaks_without_flat_tops_are_no_clipping(
        self, corpus, write_audio, make_speech
    ):
        samples = make_speech()
        samples[::100] = 1.0
        samples[1::100] = 1.0
        assert kinds(check_manifest(corpus(write_audio("a.wav", samples)))) == []

    def test_silent(self, corpus, write_audio, make_speech):
        zeros = write_audio("zeros.wav", np.zeros(16000, np.float32))
        speech = make_speech()
        cancelling = write_audio("anti.wav", np.stack([speech, -speech], 1), subtype="FLOAT")
        report = check_manifest(corpus(zeros, cancelling))
        assert [(item.row, item.kind) for item in report.findings] == [
            (1, "silent"),
            (2, "multi-channel"),
            (2, "silent"),
            # Both mix down to the same zeros.
            (2, "duplicate-content"),
        ]

    def test_levels_are_those_of_the_segment(self, corpus, write_audio, make_speech):
        samples = np.concatenate([make_speech(2.0), np.zeros(32000, np.float32)])
        samples[10000] = np.nan
        path = str(write_audio("a.wav", samples, subtype="FLOAT"))
        spans = [(0.0, 1.0), (1.0, 1.0), (2.5, 1.0)]
        rows = [{"audio_filepath": path, "offset": o, "duration": d} for o, d in spans]
        report = check_manifest(corpus(*rows))
        found = [(item.row, item.kind) for item in report.findings]
        assert found == [(1, "non-finite"), (3, "silent")]

    def test_damage_inside_a_file(self, corpus, write_audio):
        path = write_audio("a.ogg", 4.0)
        content = bytearray(path.read_bytes())
        middle = len(content) // 2
        content[middle : middle + 300] = bytes(300)
        path.write_bytes(content)
        assert kinds(check_manifest(corpus(path))) == ["truncated"]


def test_rows(corpus, write_audio):
    good = str(write_audio("a.wav", 1.0, seed=1))
    other = str(write_audio("b.wav", 1.0, seed=2))
    manifest = corpus(
        {"id": "a", "audio_filepath": good},
        "{broken",
        {"id": "b", "audio_filepath": other, "text": "  "},
        {"id": "a", "audio_filepath": other, "offset": 0.5},
        {"audio_filepath": good, "duration": -1},
    )
    report = check_manifest(manifest)
    assert [(item.row, item.kind) for item in report.findings] == [
        (2, "invalid-row"),
        (3, "empty-text"),
        (4, "duplicate-id"),
        (5, "invalid-row"),
    ]
    assert report.num_rows == 5
    assert [row.row for row in report.rows_ok] == [1, 3]
    assert report.counts == {"invalid-row": 2, "empty-text": 1, "duplicate-id": 1}
    result = report.sort_rows(manifest.rows)
    assert result.counts == {"duplicate-id": 1}
    assert len(result.kept) + result.num_dropped == len(manifest.rows)


def test_threads_change_nothing(corpus, write_audio, tmp_path):
    paths = [write_audio(f"{i}.flac", 0.5, seed=i % 7) for i in range(20)]
    (tmp_path / "bad.wav").write_text("x" * 99)
    manifest = corpus(*paths, tmp_path / "bad.wav", tmp_path / "none.wav")
    for decode in (True, False):
        reports = [check_manifest(manifest, workers=w, decode=decode) for w in (0, 4)]
        assert reports[0] == reports[1]
        assert reports[0].counts["duplicate-content"] == 13


def test_every_kind_has_a_severity():
    assert set(SEVERITIES.values()) == {"error", "warning"}


def test_trailing_chunks_are_no_lie(write_audio):
    path = write_audio("a.wav", 0.1)
    content = path.read_bytes()
    path.write_bytes(content + b"LIST" + struct.pack("<I", 4) + b"INFO")
    assert header_problem(path, "WAV") is None
    path.write_bytes(content + bytes(64))
    assert header_problem(path, "WAV") is None


def test_streamed_wav_without_a_size_is_no_lie(write_audio):
    path = write_audio("a.wav", 0.1)
    set_wav_data_size(path, 0xFFFFFFFF)
    assert header_problem(path, "WAV") is None


@pytest.mark.parametrize("rate", [8000, 16000, 22050, 44100, 48000, 12345])
@pytest.mark.parametrize("seconds", [0.01, 0.3, 5.0])
@pytest.mark.parametrize("channels", [1, 2])
def test_honest_flac_headers(write_audio, make_speech, rate, seconds, channels):
    samples = np.stack([make_speech(seconds, rate, c) for c in range(channels)], 1)
    assert header_problem(write_audio("a.flac", samples, rate), "FLAC") is None


def test_flac_of_unknown_length(corpus, write_audio):
    path = write_audio("a.flac", 1.0)
    set_flac_total(path, 0)
    assert kinds(check_manifest(corpus(path))) == []


def test_shared_recordings(recordings):
    report = check_manifest(read_manifest(recordings / "fsdd" / "test.jsonl"), workers=2)
    assert report.findings == ()
    assert report.num_rows == 300


def set_wav_data_size(path: Path, size: int) -> None:
    content = bytearray(path.read_bytes())
    at = content.index(b"data") + 4
    content[at : at + 4] = struct.pack("<I", size)
    path.write_bytes(content)


def set_flac_total(path: Path, samples: int) -> None:
    content = bytearray(path.read_bytes())
    field = int.from_bytes(content[18:26], "big")
    field = field >> 36 << 36 | samples
    content[18:26] = field.to_bytes(8, "big")
    path.write_bytes(content)
