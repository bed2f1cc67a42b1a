"""Evaluating a manifest: what is read, refused, counted and shown."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from voicehub.errors import DataError
from voicehub_asr_llm.evaluating import (
    Failed,
    Hypothesis,
    SeenIds,
    evaluate_manifest,
    report_rows,
)
from voicehub_data.manifest import read_manifest

RATE = 8000
WORDS = ["zero", "one", "two", "three", "four", "five"]


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    """Recordings whose first sample tells which word it is; the last file is no audio."""
    folder = tmp_path_factory.mktemp("speech")
    rows = []
    for number, word in enumerate(WORDS):
        path = folder / f"{number}.wav"
        samples = np.full(800 + 400 * ((5 * number) % 6), (number + 1) / 100, dtype=np.float32)
        soundfile.write(path, samples, RATE, subtype="FLOAT")
        rows.append({"id": f"u{number}", "audio_filepath": path.name, "text": word})
    (folder / "bad.wav").write_bytes(b"RIFF, but no more")
    rows.append({"id": "bad", "audio_filepath": "bad.wav", "text": "six"})
    path = folder / "test.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def word_of(wave):
    return WORDS[round(float(wave[0]) * 100) - 1]


def evaluate(manifest, recognise, **options):
    settings = {"sample_rate": RATE, "normalizer": "basic", "batch_size": 4, **options}
    return evaluate_manifest(recognise, manifest, **settings)


def test_rows_come_in_order_and_unreadable_ones_apart(manifest):
    sizes = []

    def recognise(waves):
        sizes.append([len(wave) for wave in waves])
        return [Hypothesis(word_of(wave)) for wave in waves]

    report = evaluate(manifest, recognise)
    assert [row.id for row in report.rows] == [f"u{i}" for i in range(6)]
    assert report.metrics["wer"] == 0.0
    assert report.metrics["failures"] == 1.0
    assert report.dropped == {"unreadable-audio": 1}
    assert len(report.notes) == 1 and report.notes[0].startswith("left out: ")
    assert report.measured == 6
    assert sum(map(len, sizes)) == 6
    assert max(map(len, sizes)) <= 4


def test_failures_of_the_model_have_their_reason(manifest):
    def recognise(waves):
        return [
            Failed("too-long") if word_of(wave) == "two" else Hypothesis("one") for wave in waves
        ]

    report = evaluate(manifest, recognise)
    assert report.dropped == {"unreadable-audio": 1, "too-long": 1}
    assert report.metrics["wer"] == 4 / 5
    assert report.metrics["failures"] == 2.0


def test_what_is_unexpected_ends_the_evaluation(manifest):
    def recognise(waves):
        raise RuntimeError("CUDA error")

    with pytest.raises(RuntimeError, match="CUDA error"):
        evaluate(manifest, recognise)


def test_no_result_at_all_is_an_error(manifest):
    with pytest.raises(DataError, match=r"no row could be recognised \(.*6 nothing"):
        evaluate(manifest, lambda waves: [Failed("nothing") for _ in waves])


def test_nothing_is_filtered_and_the_first_rows_are_taken(manifest):
    report = evaluate(
        manifest, lambda waves: [Hypothesis(word_of(wave)) for wave in waves], max_samples=2
    )
    assert [row.id for row in report.rows] == ["u0", "u1"]


class TestSeen:
    def test_rows_that_were_trained_on_are_refused(self, manifest):
        seen = SeenIds.from_ids(["u3", "u1", "other"])
        with pytest.raises(DataError, match=r"2 of 7 rows have ids .* \('u1', 'u3'\).*allow-seen"):
            evaluate(manifest, lambda waves: [Hypothesis("x")] * len(waves), seen=seen)
        allowed = evaluate(
            manifest, lambda waves: [Hypothesis("x")] * len(waves), seen=seen, allow_seen=True
        )
        assert allowed.measured == 6
        other = SeenIds.from_ids(["a", "b"])
        assert evaluate(manifest, lambda w: [Hypothesis("x")] * len(w), seen=other).measured == 6

    def test_only_rows_that_are_measured_count(self, manifest):
        seen = SeenIds.from_ids(["u5"])
        report = evaluate(manifest, lambda w: [Hypothesis("x")] * len(w), seen=seen, max_samples=3)
        assert report.measured == 3

    def test_file(self, tmp_path):
        assert SeenIds.load(tmp_path) is None
        seen = SeenIds.from_ids(["b", "a", "b", "é"])
        seen.save(tmp_path)
        loaded = SeenIds.load(tmp_path)
        assert loaded is not None
        assert len(loaded) == 3
        assert loaded.among(["x", "é", "a"]) == ["é", "a"]
        both = loaded.joined(SeenIds.from_ids(["x"]))
        assert both.among(["x", "a", "y"]) == ["x", "a"]
        assert SeenIds.from_ids([]).among(["a"]) == []
        file = next(tmp_path.iterdir())
        file.write_bytes(file.read_bytes()[:20])
        with pytest.raises(DataError, match="cannot be read"):
            SeenIds.load(tmp_path)


def test_the_report_shows_the_worst_first(manifest):
    rows = read_manifest(manifest).rows[:6]

    def recognise(waves):
        wrong = {"two": "completely other words", "four": "for"}
        return [Hypothesis(wrong.get(word_of(wave), word_of(wave))) for wave in waves]

    shown = report_rows(recognise, rows, 4, sample_rate=RATE, normalizer="basic")
    assert [row.id for row in shown[:2]] == ["u2", "u4"]
    assert len(shown) == 4
    assert all(row.errors == 0 for row in shown[2:])
    assert Path(shown[0].audio_filepath).name == "2.wav"
    few = report_rows(recognise, rows, 3, sample_rate=RATE, normalizer="basic", among=2)
    assert [row.id for row in few] == ["u2", "u4", "u0"]
