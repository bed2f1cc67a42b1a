"""Before the first step every row is used, or counted with a reason."""

from __future__ import annotations

import json

import numpy as np
import pytest
import soundfile

from voicehub.errors import DataError
from voicehub_asr_ctc.config import CTCDataConfig, LogMelModelConfig
from voicehub_asr_ctc.data import label_split
from voicehub_asr_ctc.data.preflight import available_frames
from voicehub_asr_ctc.decoding.forced import minimum_frames
from voicehub_asr_ctc.front_ends import LogMelFrontEnd
from voicehub_asr_ctc.tokenizers import CharacterTokenizer
from voicehub_data.splits import read_split

FRONT_END = LogMelFrontEnd(LogMelModelConfig())
TOKENIZER = CharacterTokenizer.from_characters("abcdefghijklmnopqrstuvwxyz")


@pytest.fixture
def manifest(tmp_path):
    """Write rows of (seconds, text, settings) with noise for audio."""

    def write(*rows):
        lines = []
        for number, (seconds, text, changes) in enumerate(rows):
            rate = changes.pop("rate", 16000)
            file = tmp_path / f"{number}.wav"
            samples = np.random.default_rng(number).standard_normal(round(seconds * rate)) * 0.1
            soundfile.write(file, samples, rate)
            row = {"id": f"r{number}", "audio_filepath": file.name, "text": text}
            lines.append(json.dumps({**row, "duration": seconds, **changes}))
        path = tmp_path / "rows.jsonl"
        path.write_text("\n".join(lines) + "\n")
        return path

    return write


def split_of(path, *, training=True, **settings):
    config = CTCDataConfig(train=str(path), **{"max_drop_fraction": 0.5, **settings})
    rows = read_split("train", config.train, config, training=training, sample_rate=16000)
    return rows, config


def labelled(path, *, training=True, fastest=1.0, **settings):
    rows, config = split_of(path, training=training, **settings)
    return label_split(rows, TOKENIZER, FRONT_END, config, fastest=fastest)


def test_unalignable_rows_are_dropped_and_counted(manifest):
    path = manifest((1.0, "hello", {}), (0.2, "abcdefghijk", {}), (0.22, "aabbccddee", {}))
    split = labelled(path, max_drop_fraction=0.7)
    assert [row.id for row in split.rows] == ["r0"]
    assert split.report.dropped == {"unalignable": 2}
    assert split.report.kept + sum(split.report.dropped.values()) == split.report.total == 3


def test_the_limit_is_exact(manifest):
    """0.2 s at 20 ms give 11 frames less the tolerance; the labels just fit, or do not."""
    frames = FRONT_END.frames(round(0.2 * 16000))
    text = "abcdefghijklmnopqrstuvwxyz"[: frames - 1]
    assert labelled(manifest((0.2, text, {}))).report.kept == 1
    path = manifest((0.2, text + "zz", {}), (1.0, "a", {}))
    assert labelled(path).report.dropped == {"unalignable": 1}


def test_faster_playing_is_allowed_for(manifest):
    path = manifest((0.2, "abcdefghij", {}), (1.0, "a", {}))
    assert labelled(path).report.dropped == {}
    assert labelled(path, fastest=1.2).report.dropped == {"unalignable": 1}


def test_policy_error_names_a_row(manifest):
    path = manifest((1.0, "hello", {}), (0.1, "abcdefghijk", {}))
    with pytest.raises(DataError, match=r"row 2 \(id 'r1'\): 11 labels need 11 frames"):
        labelled(path, unalignable="error")


def test_too_many_unalignable_rows_stop_the_run(manifest):
    path = manifest((0.1, "abcdefghijk", {}), (1.0, "a", {}))
    with pytest.raises(DataError, match="over max_drop_fraction"):
        labelled(path, max_drop_fraction=0.1)


def test_evaluation_rows_are_never_dropped(manifest):
    path = manifest((1.0, "hello", {}), (0.1, "abcdefghijk", {}), (1.0, "123", {}))
    split = labelled(path, training=False)
    assert split.report.kept == 3 and split.report.dropped == {}
    assert any(note.startswith("unalignable: 1 rows") for note in split.report.notes)


def test_rows_without_labels_are_dropped_from_training(manifest):
    path = manifest((1.0, "hello", {}), (1.0, "...", {}))
    assert labelled(path).report.dropped == {"no-labels": 1}


def test_wrong_case_is_refused_with_the_setting_that_helps(manifest):
    path = manifest((1.0, "HELLO WORLD", {}))
    with pytest.raises(DataError, match="label-case: .*data.text_case=lower"):
        labelled(path, text_normalizer="none")
    assert labelled(path, text_normalizer="none", text_case="lower").coverage.share == 0


def test_wrong_script_is_refused(manifest):
    with pytest.raises(DataError, match="label-script: .*CYRILLIC"):
        labelled(manifest((1.0, "привет мир", {})))


def test_a_few_unknown_characters_are_told(manifest):
    path = manifest(*[(2.0, "hello world", {})] * 9, (2.0, "hello wörld", {}))
    split = labelled(path, text_normalizer="none")
    assert split.report.kept == 10
    (note,) = [n for n in split.report.notes if n.startswith("unknown-characters: ")]
    assert "1 of 100 characters (1.0%, in 1 transcripts) have no token: 'ö' 1" in note


def test_sample_rates_are_compared(manifest):
    path = manifest((1.0, "hello", {"rate": 8000}), (1.0, "hello", {"sample_rate": 44100}))
    rows, _ = split_of(path)
    assert any("wrong-rate: 1 rows have 8000 Hz; resampled to 16000" in n for n in rows.notes)
    (note,) = [n for n in rows.notes if n.startswith("manifest-rate: ")]
    assert "44100 Hz stated, 16000 Hz found" in note


@pytest.mark.parametrize("training", [True, False])
def test_unreadable_files_are_counted_in_every_split(manifest, tmp_path, training):
    path = manifest(*[(1.0, "hello", {})] * 4)
    (tmp_path / "1.wav").write_bytes(b"")
    (tmp_path / "2.wav").write_text("no audio")
    with path.open("a") as file:
        file.write("not json\n")
    rows, _ = split_of(path, training=training, max_drop_fraction=0.9)
    assert rows.dropped == {"invalid-row": 1, "empty-file": 1, "undecodable": 1}
    assert len(rows.rows) + rows.dropped.total() == rows.total == 5


def test_too_many_unusable_rows_stop_the_run(manifest, tmp_path):
    path = manifest(*[(1.0, "hello", {})] * 4)
    (tmp_path / "1.wav").unlink()
    with pytest.raises(DataError, match="1 of 4 rows are unusable .*missing-file"):
        split_of(path, max_drop_fraction=0.2)


def test_nothing_usable_is_an_error(manifest, tmp_path):
    path = manifest((1.0, "hello", {}))
    (tmp_path / "0.wav").unlink()
    with pytest.raises(DataError, match="none of 1 rows is usable"):
        split_of(path)


def test_available_frames_never_promise_too_much(manifest):
    for seconds in (0.1, 0.213, 0.5):
        rows, _ = split_of(manifest((seconds, "a", {"rate": 8000})))
        promised = available_frames(rows.rows[0], FRONT_END)
        real = FRONT_END.frames(round(seconds * 8000) * 2)
        assert real - 1 <= promised <= real
        assert minimum_frames((1, 1, 2)) == 4
