"""Checkpoint names and configurations that cannot train are refused without any weights."""

from __future__ import annotations

import pytest

from voicehub.models.checks import check_full_precision, check_not_serving_only


@pytest.mark.parametrize(
    "name",
    [
        "org/model-GGUF",
        "org/model.Q4_K.gguf",
        "org/gguf",
        "org/model/gguf-files",
        "ggml-org/llama.cpp-tts",
        "org/llama_cpp_model",
        "org/model.onnx",
        "engines/model.engine",
    ],
)
def test_serving_formats(name):
    with pytest.raises(ValueError, match="serving-only format"):
        check_not_serving_only(name)


@pytest.mark.parametrize(
    "name",
    [
        "org/model-int4",
        "org/model_INT8",
        "org/model-4bit",
        "org/8bit-model",
        "org/model-GPTQ-128g",
        "org/model-awq",
    ],
)
def test_quantised_names(name):
    with pytest.raises(ValueError, match="quantization-aware"):
        check_full_precision(name, {})


@pytest.mark.parametrize(
    "name",
    [
        "facebook/mms-tts-eng",
        "org/model.safetensors",
        "org/point4you",
        "org/hint8-paint4",
        "org/engineering-voice",
        "org/hawq",
    ],
)
def test_ordinary_names_are_accepted(name):
    check_not_serving_only(name)
    check_full_precision(name, {"is_quantized": False, "quantization_config": None})


@pytest.mark.parametrize(
    "configuration",
    [
        {"is_quantized": True},
        {"load_in_4bit": True},
        {"load_in_8bit": True},
        {"quantization_config": {"bits": 4}},
        {"quantization_method": "awq"},
        {"hf_quantizer": object()},
        {"model_kwargs": {"load_in_4bit": True}},
        {"additional_model_config": {"model_kwargs": {"quantization_config": {"bits": 4}}}},
    ],
)
def test_quantised_configurations(configuration):
    with pytest.raises(ValueError, match="full-precision"):
        check_full_precision("org/model", configuration)


def test_local_directories_are_judged_by_their_own_name_and_content(tmp_path):
    directory = tmp_path / "runs-int8-gguf" / "my-model"
    directory.mkdir(parents=True)
    check_not_serving_only(str(directory))
    check_full_precision(str(directory), {})
    (directory / "weights.gguf").write_bytes(b"")
    with pytest.raises(ValueError, match=r"serving-only format \(\.gguf\)"):
        check_not_serving_only(str(directory))
    (directory / "model.safetensors").write_bytes(b"")
    check_not_serving_only(str(directory))
