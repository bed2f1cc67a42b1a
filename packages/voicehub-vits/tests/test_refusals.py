"""What cannot be trained is refused with a message of its own, before any weight is read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from voicehub import AutoModelForTextToSpeech
from voicehub.adapters.auto import AutoTrainingAdapter
from voicehub.errors import (
    CheckpointError,
    ConfigurationError,
    DataError,
    UnsupportedTrainingError,
)
from voicehub_vits.conformance import ARCHITECTURE, tones
from voicehub_vits.experiment import build_experiment
from voicehub_vits.testing import ACOUSTIC, write_manifest, write_wave


@pytest.fixture(autouse=True)
def no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading or making weights would fail these tests."""
    import transformers

    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("weights were allocated")

    monkeypatch.setattr(transformers.VitsModel, "from_pretrained", fail)
    monkeypatch.setattr(transformers.VitsModel, "__init__", fail)


def wrapper_of(path: Path, **options: Any) -> Any:
    return AutoModelForTextToSpeech.from_pretrained(str(path), model_type="vits", **options)


def set_up(path: Path, **options: Any) -> None:
    AutoTrainingAdapter.from_model(wrapper_of(path, **options)).setup()


def altered(checkpoint: Path, target: Path, **config: Any) -> Path:
    shutil.copytree(checkpoint, target)
    values = json.loads((target / "config.json").read_text()) | config
    (target / "config.json").write_text(json.dumps(values))
    return target


ACOUSTIC_FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"sampling_rate": 8000}, r"sampling_rate is 8000 Hz, the model works at 4000 Hz"),
    ({"hop_length": 32}, r"hop_length is 32, but the decoder's upsample rates 4 x 4 make 16"),
    (
        {"filter_length": 128, "win_length": 128},
        r"filter_length 128 gives 65 spectrogram bins, the posterior encoder reads 33",
    ),
    ({"win_length": 128}, r"win_length 128 is over filter_length 64"),
    ({"segment_size": 250}, r"segment_size 250 is no multiple of hop_length 16"),
    ({"mel_fmax": 3000}, r"mel_fmin < mel_fmax <= 2000"),
    ({"num_mel_channels": 40}, r"num_mel_channels 40 exceeds"),
    ({"hop_lenght": 16}, r"unknown key 'hop_lenght'. Did you mean 'hop_length'"),
    ({"hop_length": None}, r"hop_length"),
]


@pytest.mark.parametrize(("fault", "said"), ACOUSTIC_FAULTS, ids=lambda v: str(v)[:40])
def test_features_that_are_not_the_model_s(checkpoint: Path, fault: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        set_up(checkpoint, training_acoustic_config={**ACOUSTIC, **fault})


def test_features_that_are_not_given(checkpoint: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"needs training_acoustic_config.*generator_only"):
        set_up(checkpoint)


def test_an_unknown_option_names_the_nearest(checkpoint: Path) -> None:
    with pytest.raises(ConfigurationError, match="Did you mean 'generator_only'"):
        wrapper_of(checkpoint, generator_onli=True)


@pytest.mark.parametrize("suffix", ["onnx", "gguf"])
def test_serving_formats(checkpoint: Path, tmp_path: Path, suffix: str) -> None:
    target = altered(checkpoint, tmp_path / "served")
    (target / "model.safetensors").rename(target / f"model.{suffix}")
    with pytest.raises(UnsupportedTrainingError, match=rf"\.{suffix}.*no gradient"):
        set_up(target, training_acoustic_config=ACOUSTIC)


def test_quantised_checkpoints(checkpoint: Path, tmp_path: Path) -> None:
    settings = {"quantization_config": {"load_in_8bit": True}}
    target = altered(checkpoint, tmp_path / "quantised", **settings)
    with pytest.raises(UnsupportedTrainingError, match="is set up quantised"):
        set_up(target, training_acoustic_config=ACOUSTIC)


def test_pickles(checkpoint: Path, tmp_path: Path) -> None:
    target = altered(checkpoint, tmp_path / "pickled")
    (target / "model.safetensors").rename(target / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="pickles, which can run code"):
        set_up(target, training_acoustic_config=ACOUSTIC)


def test_models_of_another_kind(checkpoint: Path, tmp_path: Path) -> None:
    target = altered(checkpoint, tmp_path / "other", model_type="speecht5")
    with pytest.raises(ConfigurationError, match="of type 'speecht5', a 'vits' one was expected"):
        set_up(target, training_acoustic_config=ACOUSTIC)


def test_conditioning_without_voices(checkpoint: Path, tmp_path: Path) -> None:
    target = altered(checkpoint, tmp_path / "odd", speaker_embedding_size=4)
    with pytest.raises(ConfigurationError, match="conditioning layers would get no input"):
        set_up(target, training_acoustic_config=ACOUSTIC)


# -- of a run ---------------------------------------------------------------------------------


@pytest.fixture
def settings(checkpoint: Path) -> dict[str, Any]:
    return {"path": str(checkpoint), "training_acoustic_config": ACOUSTIC}


def manifest_with(folder: Path, text: str, audio: np.ndarray[Any, Any], **more: Any) -> str:
    write_wave(folder / "good.wav", tones("abcdab", 1))
    write_wave(folder / "odd.wav", audio)
    rows = [
        {"id": "good", "audio_filepath": "good.wav", "text": "abcdab", **more},
        {"id": "odd", "audio_filepath": "odd.wav", "text": text, **more},
    ]
    return str(write_manifest(folder / "rows.jsonl", rows))


DATA_FAULTS = [
    ("xyz", "abcd", "no-known-symbol", r"no symbol of 'xyz' has a token"),
    ("a", "a", "shorter-than-segment", r"shorter than one segment of 256 samples \(0\.06 s\)"),
    ("abcd" * 40, "abcd", "text-longer-than-audio", r"321 tokens do not fit into \d+ frames"),
]


@pytest.mark.parametrize(("text", "sound", "reason", "said"), DATA_FAULTS)
def test_rows_that_cannot_be_trained_on(
    settings: Any, run_config: Any, tmp_path: Path, text: str, sound: str, reason: str, said: str
) -> None:
    audio = tones(sound, 1)
    if reason == "shorter-than-segment":
        audio = audio[100:300]
    data: dict[str, Any] = {
        "train": manifest_with(tmp_path, text, audio),
        "max_unknown_fraction": 1.0,
        "filters": {"min_duration": None},
    }
    with pytest.raises(DataError, match=said) as refused:
        build_experiment(run_config(settings, data))
    assert "odd" in str(refused.value) and "data.unusable=drop" in str(refused.value)
    data |= {"unusable": "drop", "max_drop_fraction": 0.5}
    (report,) = build_experiment(run_config(settings, data)).data_report
    assert (report.total, report.kept, report.dropped) == (2, 1, {reason: 1})
    data["max_drop_fraction"] = 0.1
    with pytest.raises(DataError, match="over data.max_drop_fraction 0.1"):
        build_experiment(run_config(settings, data))


def test_too_many_unknown_symbols(settings: Any, run_config: Any, tmp_path: Path) -> None:
    data = {"train": manifest_with(tmp_path, "abcdxyzxyz", tones("abcd", 1))}
    with pytest.raises(DataError, match=r"6 of 16 symbols \(37\.5%\) have no token: 'x' 2"):
        build_experiment(run_config(settings, data))


def test_speaker_ids_out_of_range(voices_checkpoint: Path, run_config: Any, tmp_path: Path) -> None:
    settings = {"path": str(voices_checkpoint), "training_acoustic_config": ACOUSTIC}
    data = {"speaker_ids": {"anna": 0, "bert": 3}}
    said = "speaker 'bert' has id 3, which is out of range: the speaker table has 3 rows"
    with pytest.raises(ConfigurationError, match=said):
        build_experiment(run_config(settings, data))
    with pytest.raises(ConfigurationError, match="gives two speakers one id"):
        build_experiment(run_config(settings, {"speaker_ids": {"anna": 1, "bert": 1}}))
    with pytest.raises(ConfigurationError, match="leaves out bert"):
        build_experiment(run_config(settings, {"speaker_ids": {"anna": 1}}))
    with pytest.raises(ConfigurationError, match="Did you mean 'anna'"):
        build_experiment(run_config(settings, {"speaker_ids": {"ana": 1}}))
    placed = build_experiment(run_config(settings, {"speaker_ids": {"anna": 2, "bert": 0}}))
    assert placed.model.voices.speakers == ("bert", "1", "anna")
    data = {"train": manifest_with(tmp_path, "abcd", tones("abcd", 1))}
    with pytest.raises(DataError, match="names no speaker"):
        build_experiment(run_config(settings, data))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"architecture": ARCHITECTURE}, "exactly one of path"),
        ({"generator_only": True}, "exclude each other"),
        ({"freeze": ["text_encoder", "posterior_encoder", "flow", "decoder",
                     "duration_predictor"]}, "nothing would train"),
        ({"weights": {"duration": 0, "kl": 0}}, "text encoder would not train"),
        ({"language_conditioning": True}, "speaker_embedding_size 0"),
        ({"speaker_table": "new"}, "speaker_embedding_size 0"),
    ],
    ids=lambda value: str(value)[:30],
)  # fmt: skip
def test_settings_that_contradict_each_other(
    settings: Any, run_config: Any, change: Any, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        build_experiment(run_config({**settings, **change}))


def test_speakers_and_texts_of_synthesis(voices_checkpoint: Path) -> None:
    model = wrapper_of(voices_checkpoint)
    with pytest.raises(ConfigurationError, match="speaker id 3 is out of range.*0 to 2"):
        model.synthesize(["abc"], speaker="3")
    with pytest.raises(ConfigurationError, match="has 3 speakers; name one of 0, 1, 2"):
        model.synthesize(["abc"])
    with pytest.raises(DataError, match="no symbol of 'XYZ!' has a token"):
        model.synthesize(["XYZ!"], speaker=0)
    with pytest.raises(ConfigurationError, match="unknown synthesis option 'tempo'"):
        model.synthesize(["abc"], speaker=0, tempo=2)
    with pytest.raises(ConfigurationError, match="'de' was asked for, but this model knows"):
        model.synthesize(["abc"], speaker=0, language="de")
    with pytest.raises(ConfigurationError, match="speaking_rate must be over 0, got 0"):
        model.synthesize(["abc"], speaker=0, speaking_rate=0)


# -- what evaluations need --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"sentences": ["abc", "XYZ!"]}, "eval.sentences, number 2: no symbol of 'XYZ!'"),
        ({"recogniser": "runs/not/there"}, "eval.recogniser: 'runs/not/there' does not exist"),
        ({"recogniser": "an/id"}, "eval.recogniser: .*set eval.recogniser_type, one of"),
        ({"recogniser": "CHECKPOINT"}, "eval.recogniser: 'vits' serves text-to-speech"),
        ({"embedder": "runs/not/there"}, "eval.embedder: 'runs/not/there' does not exist"),
        ({"embedder": "CHECKPOINT"}, "eval.embedder: 'vits' serves text-to-speech"),
        ({"recogniser_type": "ctc-logmel"}, "there is none"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_would_end_a_run_at_its_first_evaluation(
    checkpoint: Path, run_config: Any, section: dict[str, Any], said: str
) -> None:
    named = {k: str(checkpoint) if v == "CHECKPOINT" else v for k, v in section.items()}
    model = {"path": str(checkpoint), "training_acoustic_config": ACOUSTIC}
    with pytest.raises((ConfigurationError, ValueError), match=said):
        build_experiment(run_config(model, eval=named))
