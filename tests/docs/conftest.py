"""The directory that documentation is tried out in."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def spoken_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real corpus of a few minutes, made once."""
    if importlib.util.find_spec("espeakng_loader") is None:
        pytest.skip('the snippets need a corpus: pip install "voicehub-data[synth]"')
    from voicehub_data.synthetic import build_corpus

    return build_corpus(tmp_path_factory.mktemp("spoken") / "corpus", minutes=3.0).directory


@pytest.fixture
def workspace(tmp_path: Path, spoken_corpus: Path) -> Path:
    """An empty directory but for `my_corpus`: train.jsonl, test.jsonl, recording.flac, audio/."""
    mine = tmp_path / "my_corpus"
    (mine / "audio").mkdir(parents=True)
    for name, split, count in (("train", "train", 48), ("test", "eval_voices", 8)):
        lines = (spoken_corpus / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
        rows = [_copied(json.loads(line), spoken_corpus, mine) for line in lines[:count]]
        (mine / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    shutil.copy(mine / rows[0]["audio_filepath"], mine / "recording.flac")
    return tmp_path


def _copied(row: dict[str, Any], corpus: Path, mine: Path) -> dict[str, Any]:
    path = f"audio/{row['id']}.flac"
    shutil.copy(corpus / row["audio_filepath"], mine / path)
    return {**row, "audio_filepath": path}
