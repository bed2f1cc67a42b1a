"""Read speech through the 16 kHz path: at other rates, and in pieces."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import soundfile

from voicehub_data.audio import load_audio, resample
from voicehub_data.manifest import read_manifest
from voicehub_xvector.embeddings import read_embeddings
from voicehub_xvector.extract import ExtractionSettings, extract_embeddings

RATE = 16000
_BESIDE = Path(__file__).resolve().parents[4].parent / "shared" / "data"
SPEECH = Path(os.environ.get("VOICEHUB_TEST_DATA", _BESIDE)) / "ljspeech"

pytestmark = pytest.mark.skipif(
    not SPEECH.is_dir(), reason=f"no recordings in {SPEECH} (VOICEHUB_TEST_DATA names another)"
)


def low_passed(audio: np.ndarray, cutoff: float) -> np.ndarray:
    """Without what lies above ``cutoff`` Hz, by a ramp of 200 Hz around it."""
    frequencies = np.fft.rfftfreq(len(audio), 1 / RATE)
    kept = np.clip((cutoff + 100 - frequencies) / 200, 0, 1)
    return np.fft.irfft(np.fft.rfft(audio) * kept, len(audio)).astype(np.float32)


@pytest.fixture(scope="module")
def recordings(tmp_path_factory) -> Path:
    """Three utterances: whole, low-passed, and at 8 kHz; the manifest says nothing of rates."""
    folder = tmp_path_factory.mktemp("speech")
    rows = []
    for row in read_manifest(SPEECH / "test.jsonl").rows[:3]:
        whole = load_audio(row.audio_filepath, sample_rate=RATE)
        low = low_passed(whole, 3600)
        versions = {
            "whole": (whole, RATE),
            "low": (low, RATE),
            "8k": (resample(whole, RATE, 8000), 8000),
            "low8k": (resample(low, RATE, 8000), 8000),
            "wrong": (resample(whole, RATE, 8000), RATE),  # as if its rate were not looked at
        }
        for name, (audio, rate) in versions.items():
            soundfile.write(folder / f"{name}-{row.id}.wav", audio, rate, subtype="FLOAT")
            line = {"id": f"{name}-{row.id}", "audio_filepath": f"{name}-{row.id}.wav"}
            rows.append(json.dumps(line))
    (folder / "manifest.jsonl").write_text("\n".join(rows))
    return folder / "manifest.jsonl"


def extracted(extractor, manifest, output, **settings):
    chosen = ExtractionSettings(**settings)
    extract_embeddings(extractor, read_manifest(manifest), output, format_="npz", settings=chosen)
    table = read_embeddings(output)
    return dict(zip(table.ids, table.vectors, strict=True)), dict(
        zip(table.ids, table.durations, strict=True)
    )


def cosine(left, right) -> float:
    return float(left @ right / np.linalg.norm(left) / np.linalg.norm(right))


def test_a_lower_rate_costs_only_what_it_cannot_hold(extractor, recordings, tmp_path):
    vectors, durations = extracted(extractor, recordings, tmp_path)
    names = [name.removeprefix("low-") for name in vectors if name.startswith("low-")]
    for name in names:
        low = vectors[f"low-{name}"]
        assert cosine(vectors[f"8k-{name}"], low) >= 0.99
        assert cosine(vectors[f"low8k-{name}"], low) >= 0.999
        assert cosine(vectors[f"wrong-{name}"], low) < 0.99
        info = soundfile.info(recordings.parent / f"8k-{name}.wav")
        assert durations[f"8k-{name}"] == info.frames / 8000
        assert durations[f"low-{name}"] == pytest.approx(durations[f"8k-{name}"], abs=1 / 8000)


def test_pieces_of_a_recording_say_what_the_whole_says(extractor, recordings, tmp_path):
    whole, durations = extracted(extractor, recordings, tmp_path / "whole")
    pieces, same = extracted(extractor, recordings, tmp_path / "pieces", chunk_seconds=1.5)
    assert same == pytest.approx(durations, abs=1e-9)
    for name, vector in whole.items():
        assert cosine(pieces[name], vector) >= 0.98
        assert not np.array_equal(pieces[name], vector)
