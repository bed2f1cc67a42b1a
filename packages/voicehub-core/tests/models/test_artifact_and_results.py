"""The artifact's config.json, and the results that recognisers return."""

from __future__ import annotations

import json

import pytest

from voicehub.models.artifact import is_artifact, read_artifact, write_artifact_config
from voicehub.models.results import EvaluationReport, PredictionRow, Transcription, WordTiming


def test_round_trip(tmp_path):
    write_artifact_config(tmp_path / "m", model_type="toy", family="toys", model={"a": [1, "x"]})
    assert is_artifact(tmp_path / "m")
    artifact = read_artifact(str(tmp_path / "m"))
    assert (artifact.model_type, artifact.family) == ("toy", "toys")
    assert artifact.model == {"a": [1, "x"]}
    assert artifact.directory == tmp_path / "m"


def test_configuration_must_be_strict_json(tmp_path):
    with pytest.raises(ValueError):
        write_artifact_config(tmp_path, model_type="t", family="f", model={"a": float("nan")})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"architectures": ["X"]}, "not a VoiceHub artifact"),
        ({"voicehub_format": 99, "model_type": "t", "family": "f", "model": {}}, "format 99"),
        ({"voicehub_format": "1", "model_type": "t", "family": "f", "model": {}}, "format '1'"),
        ({"voicehub_format": 1, "family": "f", "model": {}}, "'model_type' must be a str"),
        ({"voicehub_format": 1, "model_type": "t", "family": "f", "model": []}, "'model' must be"),
        ([1], "must hold a JSON object"),
    ],
)
def test_damaged_documents_are_named(tmp_path, content, message):
    (tmp_path / "config.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message):
        read_artifact(tmp_path)


def test_a_directory_of_another_library_is_no_artifact(tmp_path):
    assert not is_artifact(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["X"]}))
    assert not is_artifact(tmp_path)


def test_results_become_json():
    row = PredictionRow("a", "one two", "one", errors=1, words=2, audio_filepath="a.wav")
    report = EvaluationReport({"wer": 0.5}, [row], {"too long": 2})
    text = Transcription("a.wav", "one", [WordTiming("one", 0.1, 0.4)], 1.0)
    for result in (row, report, text):
        assert json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert report.to_dict()["rows"][0]["errors"] == 1
    assert text.to_dict()["words"] == [{"word": "one", "start": 0.1, "end": 0.4}]
