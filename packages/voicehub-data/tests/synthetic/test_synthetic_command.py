from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from voicehub_data.synthetic.command import synthesize

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("espeakng_loader") is None,
    reason='espeak-ng is not installed: pip install "voicehub-data[synth]"',
)


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer()
    app.command("synthesize")(synthesize)
    return app


def test_json_is_one_object_on_the_last_line(app: typer.Typer, tmp_path: Path) -> None:
    call = [str(tmp_path / "corpus"), "--minutes", "3", "--json"]
    first = CliRunner().invoke(app, call)
    assert first.exit_code == 0, first.output
    report = json.loads(first.output.splitlines()[-1])
    assert report["reused"] is False
    assert set(report["manifests"]) == {"train", "eval_sentences", "eval_voices"}
    assert all(Path(path).is_file() for path in report["manifests"].values())
    second = json.loads(CliRunner().invoke(app, call).output.splitlines()[-1])
    assert second["reused"] is True
    assert second["digest"] == report["digest"]


def test_the_table_names_every_manifest(app: typer.Typer, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [str(tmp_path / "corpus"), "--minutes", "3"])
    for name in ("train.jsonl", "eval_sentences.jsonl", "eval_voices.jsonl"):
        assert name in result.output
