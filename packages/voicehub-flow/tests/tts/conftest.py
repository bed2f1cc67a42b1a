"""A corpus of tones that spell letters, and a published checkpoint that knows some of them."""

from __future__ import annotations

import json

import pytest
import soundfile

from voicehub_flow.smoke import make_tiny_checkpoint
from voicehub_flow.tts.conformance import RATE, tones

TEXTS = ("abcd", "dabc", "ccab", "badbad", "dcbaab", "abdca")


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """``train.jsonl`` of six utterances by two speakers, and ``test.jsonl``."""
    folder = tmp_path_factory.mktemp("tones")
    rows = []
    for number, text in enumerate(TEXTS):
        audio = tones(text, number)
        soundfile.write(folder / f"{number}.wav", audio, RATE, subtype="FLOAT")
        rows.append(
            {
                "id": f"t{number}",
                "audio_filepath": f"{number}.wav",
                "duration": len(audio) / RATE,
                "text": text,
                "speaker": "anna" if number % 2 else "bert",
            }
        )
    for name, kept in (("train", rows), ("test", rows[:2])):
        text = "".join(json.dumps(row) + "\n" for row in kept)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    """A published checkpoint of tiny sizes whose vocabulary lacks the letter d."""
    return make_tiny_checkpoint(tmp_path_factory.mktemp("published"), (" ", "a", "b", "c", "x"))
