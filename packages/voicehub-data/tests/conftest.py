"""Audio and manifests that the tests make for themselves, and the shared recordings if present."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile


def speech_like(seconds: float, sample_rate: int, seed: int) -> np.ndarray:
    """A modulated harmonic tone with a little noise: float32, peak about 0.5."""
    generator = np.random.default_rng(seed)
    time = np.arange(round(seconds * sample_rate)) / sample_rate
    pitch = generator.uniform(90, 220)
    tone = sum(np.sin(2 * np.pi * pitch * k * time) / k for k in range(1, 8))
    envelope = 0.5 + 0.5 * np.sin(2 * np.pi * 3 * time + generator.uniform(0, 6))
    signal = 0.2 * tone * envelope + 0.01 * generator.standard_normal(len(time))
    return np.clip(signal, -0.9, 0.9).astype(np.float32)


@pytest.fixture
def make_speech() -> Callable[..., np.ndarray]:
    def make(seconds: float = 1.0, sample_rate: int = 16000, seed: int = 0) -> np.ndarray:
        return speech_like(seconds, sample_rate, seed)

    return make


@pytest.fixture
def write_audio(tmp_path: Path) -> Callable[..., Path]:
    """``write_audio(name, samples or seconds, rate, **soundfile options)`` below tmp_path."""

    def write(
        name: str,
        audio: np.ndarray | float = 1.0,
        sample_rate: int = 16000,
        seed: int = 0,
        **options: Any,
    ) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(audio, float):
            audio = speech_like(audio, sample_rate, seed)
        soundfile.write(path, audio, sample_rate, **options)
        return path

    return write


@pytest.fixture
def write_jsonl(tmp_path: Path) -> Callable[..., Path]:
    """``write_jsonl(rows, name)``: one JSON object a line; text items are written as they are."""

    def write(rows: list[dict[str, Any] | str], name: str = "manifest.jsonl") -> Path:
        path = tmp_path / name
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        return path

    return write


@pytest.fixture
def recordings() -> Path:
    """Folder of real recordings: VOICEHUB_TEST_DATA, or shared/data beside the repository."""
    named = os.environ.get("VOICEHUB_TEST_DATA")
    if named:
        candidates = [Path(named)]
    else:
        candidates = [parent / "shared" / "data" for parent in Path(__file__).resolve().parents]
    for candidate in candidates:
        if (candidate / "fsdd" / "test.jsonl").exists():
            return candidate
    pytest.skip("no shared/data with recordings beside the repository (or VOICEHUB_TEST_DATA)")
