"""Judges of synthetic digits: recognisers that never heard a synthesiser.

One is an asr-ctc model of the natural recordings, the other pocketsphinx with a grammar of the ten
words, which knows other speakers.
"""

from __future__ import annotations

import json
import random
import wave
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from barkit import Skipped, shared_data, voicehub

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
RATE = 16000


@dataclass(frozen=True)
class Clip:
    """A recording and the digit that it should be."""

    path: Path
    text: str


def read_rows(manifest: Path) -> list[dict[str, Any]]:
    """Rows of a manifest, with absolute audio paths."""
    lines = manifest.read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines if line]
    for row in rows:
        row["audio_filepath"] = str(manifest.parent / row["audio_filepath"])
    return rows


def with_shuffled_texts(manifest: Path, folder: Path) -> Path:
    """A manifest of the same recordings, their texts dealt out anew."""
    rows = read_rows(manifest)
    texts = [row["text"] for row in rows]
    random.Random(0).shuffle(texts)
    target = folder / "shuffled.jsonl"
    lines = [json.dumps({**row, "text": text}) for row, text in zip(rows, texts, strict=True)]
    target.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return target


def clips_of(manifest: Path) -> list[Clip]:
    """The recordings of a manifest."""
    return [Clip(Path(row["audio_filepath"]), row["text"]) for row in read_rows(manifest)]


class Judges:
    """Both recognisers.

    Args:
        scratch: where the asr-ctc model is trained, unless ``trained`` names it.
        trained: directory of the asr-ctc model.
    """

    def __init__(self, scratch: Path, trained: Path | None = None) -> None:
        try:
            import pocketsphinx  # noqa: F401
        except ImportError:
            raise Skipped("pocketsphinx is not installed (requirements/bench.txt)") from None
        data = shared_data("fsdd")
        if trained is None:
            answer = voicehub(
                "train",
                "asr-ctc/tiny",
                f"data.train={data / 'train.jsonl'}",
                f"data.eval={data / 'test.jsonl'}",
                f"training.output_dir={scratch / 'judge'}",
            )
            trained = Path(answer["summary"]["model_directory"])
        self.trained, self._scratch = trained, scratch

    def accuracy(self, clips: Sequence[Clip]) -> dict[str, float]:
        """Share of clips that each judge hears as what they should be."""
        asr = self._asr(clips)
        sphinx = _Sphinx(self._scratch)
        heard = [sphinx.word(_samples(clip.path)) for clip in clips]
        return {
            "asr-ctc": _share(asr, clips),
            "pocketsphinx": _share(heard, clips),
        }

    def _asr(self, clips: Sequence[Clip]) -> list[str]:
        from voicehub.cli.recognisers import load_recogniser

        recogniser = load_recogniser(str(self.trained), model_type=None, device="cpu")
        made = recogniser.transcribe([clip.path for clip in clips], batch_size=16)
        return [transcription.text for transcription in made]


class _Sphinx:
    def __init__(self, scratch: Path) -> None:
        from pocketsphinx import Decoder

        grammar = scratch / "digits.gram"
        grammar.write_text(
            f"#JSGF V1.0;\ngrammar digits;\npublic <digit> = {' | '.join(WORDS)} ;\n",
            encoding="utf-8",
        )
        self._decoder = Decoder(jsgf=str(grammar), samprate=RATE, loglevel="FATAL")

    def word(self, samples: np.ndarray[Any, Any]) -> str:
        """What it hears, with a fifth of a second of silence at both ends."""
        silence = np.zeros(RATE // 5, dtype=np.float32)
        padded = np.concatenate([silence, samples, silence])
        loud = padded / max(float(np.abs(padded).max()), 1e-9) * 0.7
        self._decoder.start_utt()
        self._decoder.process_raw((loud * 32767).astype("<i2").tobytes(), full_utt=True)
        self._decoder.end_utt()
        found = self._decoder.hyp()
        return "" if found is None else str(found.hypstr)


def write_wav(path: Path, samples: np.ndarray[Any, Any], rate: int) -> None:
    """Write mono 16 bit."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((np.clip(samples, -1, 1) * 32767.0).astype("<i2").tobytes())


def _samples(path: Path) -> np.ndarray[Any, Any]:
    from voicehub_data.audio import load_audio

    return load_audio(path, sample_rate=RATE)


def _share(heard: Sequence[str], clips: Sequence[Clip]) -> float:
    right = sum(word.strip().lower() == clip.text for word, clip in zip(heard, clips, strict=True))
    return right / len(clips)
