"""Small corpora on disk."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

RATE = 8000


@pytest.fixture
def corpus(tmp_path: Path) -> Callable[..., str]:
    """``corpus(name, rows)``: a manifest whose rows may say ``samples`` of noise, or ``audio``."""

    def write(name: str, rows: list[dict[str, Any]]) -> str:
        folder = tmp_path / name
        folder.mkdir()
        generator = np.random.default_rng(0)
        lines = []
        for number, row in enumerate(rows):
            row = {"id": f"{name}-{number}", "text": "hello there", "samples": RATE, **row}
            audio, samples = row.pop("audio", None), row.pop("samples")
            path = folder / f"{number}.wav"
            if audio is None:
                audio = 0.1 * generator.standard_normal(samples).astype(np.float32)
            if isinstance(audio, bytes):
                path.write_bytes(audio)
            else:
                soundfile.write(path, audio, RATE, subtype="FLOAT")
            lines.append(json.dumps({"audio_filepath": path.name, **row}) + "\n")
        manifest = folder / f"{name}.jsonl"
        manifest.write_text("".join(lines), encoding="utf-8")
        return str(manifest)

    return write
