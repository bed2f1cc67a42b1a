"""Bad audio and bad manifests: a clear error or a counted drop that names the row; never a bare
traceback, never a silent skip."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import soundfile

RATE = 16000
Break = Callable[[Any], None]
DROPPED: dict[str, tuple[str, Break]] = {}
REFUSED: dict[str, tuple[str, Break]] = {}


def dropped(reason: str) -> Callable[[Break], Break]:
    """The clip is left out and counted under a reason that matches; training goes on."""

    def register(function: Break) -> Break:
        DROPPED[function.__name__] = (reason, function)
        return function

    return register


def refused(message: str) -> Callable[[Break], Break]:
    """Training does not start, and the message says why."""

    def register(function: Break) -> Break:
        REFUSED[function.__name__] = (message, function)
        return function

    return register


@dropped("missing")
def missing_file(corpus: Any) -> None:
    corpus.add("absent.flac")


@dropped("empty")
def zero_bytes(corpus: Any) -> None:
    (corpus.directory / "zero.wav").write_bytes(b"")
    corpus.add("zero.wav")


@dropped("undecodable")
def text_file_named_wav(corpus: Any) -> None:
    (corpus.directory / "text.wav").write_text("this is no audio\n" * 100)
    corpus.add("text.wav")


@dropped("undecodable|truncated|lies")
def truncated_flac(corpus: Any) -> None:
    path = corpus.clip("cut.flac", seconds=2.0)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])
    corpus.add("cut.flac", seconds=2.0)


@dropped("duration|short|unalignable")
def a_hundredth_of_a_second(corpus: Any) -> None:
    corpus.clip("short.wav", seconds=0.01)
    corpus.add("short.wav", seconds=0.01)


@dropped("nan|finite")
def nan_samples(corpus: Any) -> None:
    sound = np.full(RATE, 0.1, dtype=np.float32)
    sound[100] = np.nan
    soundfile.write(corpus.directory / "nan.wav", sound, RATE, subtype="FLOAT")
    corpus.add("nan.wav", seconds=1.0)


@dropped("empty.text|text")
def empty_text(corpus: Any) -> None:
    corpus.clip("untold.flac")
    corpus.add("untold.flac", text="   ")


@dropped("unalignable")
def label_longer_than_frames(corpus: Any) -> None:
    corpus.clip("wordy.flac", seconds=0.5)
    corpus.add("wordy.flac", text="one two " * 20, seconds=0.5)


@dropped("lies|duration|truncated|undecodable")
def header_with_a_wrong_frame_count(corpus: Any) -> None:
    path = corpus.clip("lying.wav", seconds=1.0)
    raw = bytearray(path.read_bytes())
    at = raw.index(b"data") + 4
    raw[at : at + 4] = struct.pack("<I", 10 * (len(raw) - at - 4))
    path.write_bytes(raw)
    corpus.add("lying.wav", seconds=10.0)


@dropped("offset|beyond|lies|duration")
def offset_beyond_the_end(corpus: Any) -> None:
    corpus.clip("far.flac")
    corpus.add("far.flac", offset=5.0)


@dropped("invalid-row")
def row_that_is_not_json(corpus: Any) -> None:
    corpus.rows.append("{broken")  # written as a JSON string: no mapping


@dropped("duplicate-id")
def duplicate_ids(corpus: Any) -> None:
    corpus.rows.append(dict(corpus.rows[0]))


@dropped("invalid-row|duration")
def negative_duration(corpus: Any) -> None:
    corpus.clip("minus.flac")
    corpus.add("minus.flac", seconds=-1.0)


@dropped("invalid-row")
def row_without_a_path(corpus: Any) -> None:
    corpus.rows.append({"id": "nowhere", "text": "one", "duration": 1.0})


@refused(r"(?i)no rows|empty|holds no|is empty")
def manifest_without_rows(corpus: Any) -> None:
    corpus.rows.clear()


@pytest.mark.parametrize("case", sorted(DROPPED))
def test_a_bad_clip_is_dropped_and_counted(corpus: Any, train: Any, case: str) -> None:
    reason, break_it = DROPPED[case]
    break_it(corpus)
    corpus.write()
    outcome = train()
    assert outcome.code == 0, outcome.text
    report = json.loads((corpus.directory / "run" / "run.json").read_text())["data"]
    split = next(s for s in report if s["split"] == "train")
    assert (split["total"], split["kept"]) == (21, 20)
    assert sum(split["dropped"].values()) == 1
    assert re.search(reason, next(iter(split["dropped"]))), split["dropped"]
    assert "row 21" in outcome.text, "the row is not named"


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_a_bad_manifest_is_refused(corpus: Any, train: Any, case: str) -> None:
    message, break_it = REFUSED[case]
    break_it(corpus)
    corpus.write()
    outcome = train()
    assert outcome.code in (1, 2)
    error = outcome.last_json["error"]
    assert re.search(message, error["message"]), error["message"]
    assert "traceback_file" not in error
    assert "Traceback" not in outcome.text


def test_a_line_that_is_no_json_at_all_is_named(corpus: Any, train: Any) -> None:
    with (corpus.directory / "train.jsonl").open("a") as file:
        file.write("{broken\n")
    outcome = train()
    assert outcome.code == 0
    assert "train.jsonl, row 21: not JSON" in outcome.text


def test_many_channels_are_mixed_down_and_told(corpus: Any, train: Any, voicehub: Any) -> None:
    sound = np.random.default_rng(0).normal(0, 0.1, (RATE, 8)).astype(np.float32)
    soundfile.write(corpus.directory / "wide.wav", sound, RATE)
    corpus.add("wide.wav", seconds=1.0)
    corpus.write()
    outcome = train()
    assert outcome.code == 0, outcome.text
    check = voicehub("data", "check", "train.jsonl", "--json")
    assert "channel" in json.dumps(check.last_json)


def test_another_rate_is_resampled_and_told(corpus: Any, train: Any) -> None:
    corpus.clip("slow.wav", rate=8000)
    corpus.add("slow.wav")
    corpus.write()
    outcome = train()
    assert outcome.code == 0, outcome.text
    assert "8000" in outcome.text.replace(",", "") or "8 kHz" in outcome.text


def test_too_many_drops_stop_the_run(corpus: Any, train: Any) -> None:
    for n in range(10):
        corpus.add(f"absent-{n}.flac")
    corpus.write()
    outcome = train()
    assert outcome.code in (1, 2) and "Traceback" not in outcome.text
    assert "max_drop_fraction" in outcome.last_json["error"]["message"]


def test_evaluation_rows_are_never_dropped_without_a_word(corpus: Any, train: Any) -> None:
    corpus.add("absent.flac")
    corpus.write("eval.jsonl")
    corpus.rows.pop()
    corpus.write()
    outcome = train()
    assert "absent" in outcome.text


def test_unknown_characters_are_named(corpus: Any, train: Any) -> None:
    rows = [dict(row, text="один два") for row in corpus.rows]
    corpus.rows[:] = rows
    corpus.write("eval.jsonl")
    outcome = train()
    assert "Traceback" not in outcome.text
    assert any(letter in outcome.text for letter in "один")
