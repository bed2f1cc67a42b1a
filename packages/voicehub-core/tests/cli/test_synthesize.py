"""``voicehub synthesize`` over a model that hums: which files it writes, and what it refuses."""

from __future__ import annotations

import wave
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from voicehub.cli import synthesizers
from voicehub.errors import DataError
from voicehub.models.results import Synthesis

RATE = 8000


class Hummer:
    """Says as many tenths of a second as a text has letters."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def synthesize(self, texts: Sequence[str], **options: Any) -> list[Synthesis]:
        self.asked.append(options)
        if "?" in texts:
            raise DataError("no symbol of '?' has a token.")
        time = np.arange(RATE // 10 * len(texts[0])) / RATE
        return [Synthesis(texts[0], np.sin(time * 1000).astype(np.float32), RATE)]


@pytest.fixture
def hummer(monkeypatch: pytest.MonkeyPatch) -> Hummer:
    model = Hummer()
    monkeypatch.setattr(synthesizers, "load_synthesizer", lambda *_, **__: model)
    return model


def seconds(path: Path) -> float:
    with wave.open(str(path)) as file:
        assert file.getframerate() == RATE
        return file.getnframes() / RATE


def test_one_text_to_one_file(cli: Any, hummer: Hummer, tmp_path: Path) -> None:
    out = tmp_path / "new" / "said.wav"
    arguments = ["--model", "m", "--text", "abc", "--out", str(out), "--seed", "4"]
    outcome = cli("synthesize", *arguments, "--speaker", "anna", "--speaking-rate", "1.5", "--json")
    assert outcome.code == 0
    assert seconds(out) == pytest.approx(0.3)
    expected = {"speaker": "anna", "language": None, "speaking_rate": 1.5, "seed": 4}
    assert hummer.asked == [expected]
    (row,) = outcome.last_json["spoken"]
    assert row == {"text": "abc", "file": str(out), "seconds": 0.3}


def test_a_file_of_texts_to_a_folder(cli: Any, hummer: Hummer, tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("a\n\n bb \n?\nccc\n", encoding="utf-8")
    out = tmp_path / "said"
    outcome = cli("synthesize", "--model", "m", "--file", str(texts), "--out", str(out), "--json")
    assert outcome.code == 1  # one cannot be said; the others are done
    assert [path.name for path in sorted(out.iterdir())] == ["1.wav", "2.wav", "4.wav"]
    assert seconds(out / "4.wav") == pytest.approx(0.3)
    (failed,) = outcome.last_json["failed"]
    assert failed["text"] == "?" and "no symbol" in failed["message"]
    assert "text 3 of 4: no symbol" in outcome.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--out", "x.wav"], "Nothing to say"),
        (["--text", "a", "--text", "b", "--out", "x.wav"], "name a folder"),
        (["--text", "a", "--out", "x.mp3"], "only .wav"),
        (["--file", "absent.txt", "--out", "x"], "absent.txt cannot be read"),
        (["--text", "a", "--out", "x.wav", "--seed", "-1"], "'--seed'"),
    ],
)
def test_what_makes_no_sense_is_wrong_use(
    cli: Any, hummer: Hummer, arguments: list[str], said: str
) -> None:
    outcome = cli("synthesize", "--model", "m", *arguments)
    assert outcome.code == 2
    assert said in outcome.stderr


@pytest.mark.parametrize("device", ["cuda:99", "gpu"])
def test_a_device_that_is_not_there_is_wrong_use(cli: Any, device: str) -> None:
    outcome = cli("synthesize", "--model", "m", "--text", "a", "--out", "x.wav", "--device", device)
    assert outcome.code == 2
    assert f"--device {device} cannot be used here" in outcome.stderr


def test_options_of_the_model_itself(cli: Any, hummer: Hummer, tmp_path: Path) -> None:
    said = ["--model", "m", "--text", "a", "--out", str(tmp_path / "a.wav")]
    own = ["--set", "steps=16", "--set", "sway=-0.5", "--set", "prompt_text=it is 4"]
    assert cli("synthesize", *said, *own).code == 0
    asked = hummer.asked[0]
    assert (asked["steps"], asked["sway"], asked["prompt_text"]) == (16, -0.5, "it is 4")
    for wrong, why in (("steps", "KEY=VALUE"), ("speaker=anna", "--speaker")):
        outcome = cli("synthesize", *said, "--set", wrong)
        assert outcome.code == 2 and why in outcome.stderr
    assert len(hummer.asked) == 1
