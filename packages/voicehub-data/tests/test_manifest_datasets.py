"""Hugging Face data sets from local files."""

from __future__ import annotations

import io

import numpy as np
import pytest
import soundfile

from voicehub.errors import ConfigurationError, DataError
from voicehub_data.audio import load_audio
from voicehub_data.manifest import read_manifest

datasets = pytest.importorskip("datasets")


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True, raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def encoded(samples: np.ndarray, kind: str = "FLAC") -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, 16000, format=kind)
    return buffer.getvalue()


def table(make_speech, count=3, **columns):
    audio = [
        {"bytes": encoded(make_speech(0.2 + 0.1 * i, seed=i)), "path": f"{i}.flac"}
        for i in range(count)
    ]
    data = datasets.Dataset.from_dict(
        {"audio": audio, "text": [f"text {i}" for i in range(count)], **columns}
    )
    return data.cast_column("audio", datasets.Audio(decode=False))


@pytest.fixture
def saved(tmp_path, make_speech):
    """A data set with two splits on disk, and a cache folder."""
    splits = {
        "train": table(make_speech, 3, speaker=["a", "b", "a"]),
        "test": table(make_speech, 2),
    }
    path = tmp_path / "saved"
    datasets.DatasetDict(splits).save_to_disk(str(path))
    return {"path": str(path), "dataset_cache_dir": str(tmp_path / "cache")}


def test_splits_by_role(saved, make_speech, tmp_path):
    manifest = read_manifest(saved)
    assert manifest.kind == "datasets"
    assert manifest.notes == ("splits read: train",)
    assert [row.id for row in manifest] == ["train-0", "train-1", "train-2"]
    assert [row.text for row in manifest] == ["text 0", "text 1", "text 2"]
    assert [row.speaker for row in manifest] == ["a", "b", "a"]
    for i, row in enumerate(manifest):
        assert row.audio_filepath.is_relative_to(tmp_path / "cache" / "voicehub-audio")
        assert row.audio_filepath.suffix == ".flac"
        audio = load_audio(row.audio_filepath, sample_rate=16000)
        assert np.abs(audio - make_speech(0.2 + 0.1 * i, seed=i)).max() < 1e-4
    evaluation = read_manifest(saved, role="eval")
    assert [row.id for row in evaluation] == ["test-0", "test-1"]


def test_several_splits_and_limit(saved):
    source = {**saved, "eval_splits": ["test", "train"], "max_eval_samples_per_dataset": 2}
    manifest = read_manifest(source, role="eval")
    assert [row.id for row in manifest] == ["test-0", "train-0"]
    assert manifest.notes[-1].startswith("max_eval_samples_per_dataset: 2 of 5 rows")


def test_digest_follows_the_content(saved, tmp_path, make_speech):
    first = read_manifest(saved)
    assert (
        read_manifest({**saved, "dataset_cache_dir": str(tmp_path / "two")}).digest == first.digest
    )
    changed = tmp_path / "changed"
    data = table(make_speech, 3, speaker=["a", "b", "c"])
    datasets.DatasetDict({"train": data}).save_to_disk(str(changed))
    assert read_manifest({**saved, "path": str(changed)}).digest != first.digest


def test_audio_is_written_once(saved):
    paths = [row.audio_filepath for row in read_manifest(saved)]
    times = [path.stat().st_mtime_ns for path in paths]
    assert [row.audio_filepath for row in read_manifest(saved)] == paths
    assert [path.stat().st_mtime_ns for path in paths] == times
    # A file that a killed process left short is written again.
    paths[0].write_bytes(b"fLaC")
    read_manifest(saved)
    assert paths[0].stat().st_size > 100


def test_parquet_file_and_directory(tmp_path, make_speech):
    folder = tmp_path / "data"
    folder.mkdir()
    table(make_speech, 2).to_parquet(str(folder / "train-00000.parquet"))
    source = {"path": str(folder / "train-00000.parquet")}
    source["dataset_cache_dir"] = str(tmp_path / "cache")
    manifest = read_manifest(source)
    assert [row.text for row in manifest] == ["text 0", "text 1"]
    assert len(read_manifest(source, role="eval")) == 2
    with pytest.raises(ConfigurationError, match="single table without splits"):
        read_manifest({**source, "train_splits": ["train"]})
    assert len(read_manifest({**source, "path": str(folder)})) == 2


def test_other_columns(tmp_path, make_speech, write_audio):
    path = write_audio("a.wav", 0.3)
    data = datasets.Dataset.from_dict(
        {"file": [str(path)], "sentence": ["hi"], "who": ["anna"], "uid": ["u7"], "seconds": [0.3]}
    )
    folder = tmp_path / "saved"
    data.save_to_disk(str(folder))
    source = {
        "path": str(folder),
        "audio_column": "file",
        "text_column": "sentence",
        "column_map": {"speaker": "who", "id": "uid", "duration": "seconds"},
    }
    (row,) = read_manifest(source)
    assert (row.id, row.text, row.speaker, row.duration) == ("u7", "hi", "anna", 0.3)
    assert row.audio_filepath == path


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"train_splits": ["trian"]}, DataError, "no split 'trian'. Did you mean 'train'"),
        ({"audio_column": "audios"}, ConfigurationError, "audio_column.*Did you mean 'audio'"),
        ({"text_column": "transcript"}, ConfigurationError, "its columns are|Its columns are"),
        ({"column_map": {"text": "text"}}, ConfigurationError, "set audio_column and text_column"),
        ({"column_map": {"speaker": "who"}}, ConfigurationError, "no column 'who'"),
        ({"audio_root": "/x"}, ConfigurationError, "audio_root does not apply"),
    ],
)
def test_wrong_settings(saved, changes, error, words):
    with pytest.raises(error, match=words):
        read_manifest({**saved, **changes})


def test_empty_audio_cells_are_problems(tmp_path):
    empty = {"bytes": None, "path": None}
    data = datasets.Dataset.from_dict(
        {"audio": [empty], "text": ["x"]},
        features=datasets.Features(
            {
                "audio": {"bytes": datasets.Value("binary"), "path": datasets.Value("string")},
                "text": datasets.Value("string"),
            }
        ),
    )
    data.save_to_disk(str(tmp_path / "saved"))
    with pytest.raises(DataError, match=r"row 1: split train, position 0: the audio cell is empty"):
        read_manifest(tmp_path / "saved")


def test_what_cannot_be_loaded(tmp_path):
    (tmp_path / "x.parquet").write_bytes(b"not parquet")
    with pytest.raises(DataError, match="datasets cannot load it"):
        read_manifest({"path": str(tmp_path / "x.parquet"), "dataset_cache_dir": str(tmp_path)})
    (tmp_path / "x.bin").write_bytes(b"")
    with pytest.raises(ConfigurationError, match="reads .parquet"):
        read_manifest({"path": str(tmp_path / "x.bin"), "kind": "datasets"})


def test_missing_package(monkeypatch, saved):
    import sys

    from voicehub.errors import OptionalDependencyError

    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(OptionalDependencyError, match=r"voicehub-data\[datasets\]"):
        read_manifest(saved)


def test_other_columns_stay_with_the_row_and_classes_have_names(tmp_path, make_speech):
    data = table(make_speech, 3, kind=[1, 0, -1], votes=[0, 3, None], tags=[["a"], [], ["b"]])
    data = data.cast_column("kind", datasets.ClassLabel(names=["song", "speech"]))
    data.save_to_disk(str(tmp_path / "data"))
    source = {"path": str(tmp_path / "data"), "dataset_cache_dir": str(tmp_path / "cache")}
    manifest = read_manifest({**source, "kind": "datasets"})
    assert [row.extra for row in manifest] == [
        {"kind": "speech", "votes": 0},
        {"kind": "song", "votes": 3},
        {"kind": None, "votes": None},
    ]
