"""Length formulas against the frames that models really produce."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from voicehub.errors import ConfigurationError
from voicehub_hf.encoders import CTC_ENCODERS, base_encoder, ctc_encoder
from voicehub_hf.features import (
    feature_lengths,
    frame_seconds,
    minimum_samples,
    output_frames,
    prepare_features,
)
from voicehub_hf.lengths import (
    Convolution,
    convolved_lengths,
    downsampling,
    hidden_lengths,
    minimum_input_length,
    output_lengths,
)

ADAPTER = {"add_adapter": True, "num_adapter_layers": 2}
#: Every shape of model; the odd kernels tell a formula from its usual values.
VARIANTS = [
    *((name, {}) for name in CTC_ENCODERS),
    ("wav2vec2", {"feat_extract_norm": "group", "do_stable_layer_norm": False}),
    ("wav2vec2", ADAPTER),
    ("wav2vec2", {**ADAPTER, "adapter_kernel_size": 5, "adapter_stride": 3}),
    ("wav2vec2", {"conv_dim": (8, 8, 8), "conv_kernel": (9, 4, 3), "conv_stride": (4, 3, 2)}),
    ("wavlm", {**ADAPTER, "adapter_kernel_size": 4}),
    ("wav2vec2-bert", ADAPTER),
    ("wav2vec2-bert", {**ADAPTER, "adapter_kernel_size": 5, "adapter_stride": 3}),
    ("wav2vec2-bert", {**ADAPTER, "adapter_kernel_size": 6, "adapter_stride": 4}),
    ("parakeet_ctc", {"subsampling_factor": 4}),
    ("parakeet_ctc", {"subsampling_factor": 4, "subsampling_conv_kernel_size": 5}),
]


def produced(model, length: int) -> int:
    """Frames that the model gives for one input of this length."""
    encoder = ctc_encoder(model)
    shape = (1, length)
    if encoder.processor_kind == "log-mel":
        config = getattr(model.config, "encoder_config", model.config)
        width = getattr(config, "feature_projection_input_dim", None) or config.num_mel_bins
        shape = (1, length, width)
    with torch.no_grad():
        return model(**{encoder.input_name: torch.randn(shape)}).logits.shape[1]


@pytest.mark.parametrize(("model_type", "overrides"), VARIANTS)
def test_the_formula_gives_the_frames_produced(load, model_type, overrides):
    model, _ = load(model_type, **overrides)
    least = minimum_input_length(model.config)
    step = downsampling(model.config)
    lengths = {*range(least, least + 5), least + step - 1, least + step, least + step + 1}
    lengths |= {least + 7 * step + offset for offset in (-1, 0, 1, step // 2)}
    for length in sorted(length for length in lengths if length >= least):
        frames = output_lengths(model.config, length)
        assert frames >= 1
        assert produced(model, length) == frames, f"{length} input steps"


@pytest.mark.parametrize(("model_type", "overrides"), VARIANTS)
def test_below_the_minimum_there_is_no_frame(load, model_type, overrides):
    model, _ = load(model_type, **overrides)
    least = minimum_input_length(model.config)
    for shorter in range(max(0, least - 3), least):
        assert output_lengths(model.config, shorter) == 0
    for frames in (2, 5):
        needed = minimum_input_length(model.config, frames)
        assert output_lengths(model.config, needed) == frames
        assert output_lengths(model.config, needed - 1) == frames - 1


def test_it_agrees_with_the_methods_of_transformers(load, model_type):
    model, _ = load(model_type)
    lengths = torch.arange(minimum_input_length(model.config), 30000, 37)
    if model_type == "parakeet_ctc":
        theirs = model.encoder._get_subsampling_output_length(lengths)
    else:
        theirs = model._get_feat_extract_output_lengths(lengths)
    assert torch.equal(output_lengths(model.config, lengths), theirs.long())


def test_published_models_have_frames_of_the_known_size(load):
    # 400 samples give one frame, then one more each 320; one second gives 49.
    config = load("wav2vec2")[0].config
    assert minimum_input_length(config) == 400
    assert [output_lengths(config, n) for n in (399, 400, 719, 720, 16000)] == [0, 1, 1, 2, 49]
    bert, parakeet = load("wav2vec2-bert"), load("parakeet_ctc")
    assert output_lengths(bert[0].config, 37) == 37
    assert [output_lengths(parakeet[0].config, n) for n in (1, 8, 9, 100)] == [1, 1, 2, 13]
    assert frame_seconds(config, load("wav2vec2")[1]) == pytest.approx(0.02)
    assert frame_seconds(bert[0].config, bert[1]) == pytest.approx(0.02)
    assert frame_seconds(parakeet[0].config, parakeet[1]) == pytest.approx(0.08)


def test_arrays_tensors_and_integers_agree(load, model_type):
    config = load(model_type)[0].config
    lengths = list(range(0, 3000, 61))
    expected = [output_lengths(config, length) for length in lengths]
    assert all(type(value) is int for value in expected)
    array = output_lengths(config, np.array(lengths))
    tensor = output_lengths(config, torch.tensor(lengths))
    assert array.tolist() == tensor.tolist() == expected
    assert array.dtype == np.int64
    assert tensor.dtype == torch.long


@settings(deadline=None)
@given(
    layers=st.lists(
        st.builds(Convolution, st.integers(1, 9), st.integers(1, 4), st.integers(0, 3)),
        min_size=1,
        max_size=4,
    ),
    length=st.integers(0, 200),
)
def test_any_stack_of_convolutions(layers, length):
    signal = torch.zeros(1, 1, length)
    for kernel, stride, padding in layers:
        if signal.shape[-1] == 0 or signal.shape[-1] + 2 * padding < kernel:
            assert convolved_lengths(layers, length) == 0
            return
        weight = torch.ones(1, 1, kernel)
        signal = torch.nn.functional.conv1d(signal, weight, stride=stride, padding=padding)
    assert convolved_lengths(layers, length) == signal.shape[-1]


def test_hidden_lengths_stop_before_the_adapter(load):
    model, _ = load("wav2vec2", **ADAPTER)
    seen = []
    projection = base_encoder(model).feature_projection
    projection.register_forward_hook(lambda _, __, output: seen.append(output[0].shape[1]))
    produced(model, 16000)
    assert seen == [49] == [hidden_lengths(model.config, 16000)]
    assert output_lengths(model.config, 16000) == 13


def test_samples_to_frames_for_every_processor(load, draw_waveforms, model_type):
    model, processor = load(model_type)
    least = minimum_samples(model.config, processor)
    samples = [least, least + 1, 2000, 3199, 3200, 3360, 5281, 8000]
    prepared = prepare_features(processor, draw_waveforms(*samples), 16000)
    assert prepared.lengths.tolist() == feature_lengths(processor, np.array(samples)).tolist()
    expected = output_frames(model.config, processor, np.array(samples))
    assert output_lengths(model.config, prepared.lengths).tolist() == expected.tolist()
    for wave, frames in zip(draw_waveforms(*samples), expected, strict=True):
        alone = prepare_features(processor, [wave], 16000)
        with torch.no_grad():
            logits = model(**alone.inputs).logits
        assert logits.shape[1] == frames
        assert torch.isfinite(logits).all()
    assert expected[0] >= 1


def test_clips_too_short_for_features_have_no_frames(load, model_type):
    model, processor = load(model_type)
    shortest = minimum_samples(model.config, processor)
    assert output_frames(model.config, processor, 0) == 0
    assert output_frames(model.config, processor, np.array([0, 1, 100])).tolist() == [0, 0, 0]
    if model_type != "parakeet_ctc":
        # Parakeet gives a frame from 160 samples, but cannot normalise a single feature frame.
        assert output_frames(model.config, processor, shortest - 1) == 0


def test_an_unknown_config_is_refused():
    with pytest.raises(ConfigurationError, match="'mimi'"):
        output_lengths(SimpleNamespace(model_type="mimi"), 5)
