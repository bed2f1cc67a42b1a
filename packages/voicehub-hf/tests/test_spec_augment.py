"""Masks over hidden states, and the models' own masking turned off."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from voicehub.data.keyed_random import SampleKey
from voicehub.errors import DataError
from voicehub_data.augment import SpecAugment
from voicehub_hf.encoders import base_encoder, ctc_encoder
from voicehub_hf.features import prepare_features
from voicehub_hf.freezing import freeze_feature_encoder
from voicehub_hf.lengths import hidden_lengths
from voicehub_hf.lora import add_lora
from voicehub_hf.spec_augment import (
    HiddenStateMasking,
    disable_layer_drop,
    disable_native_spec_augment,
    draw_masks,
)


def silence_dropout(model):
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for name, value in vars(module).items():
            if "dropout" in name and isinstance(value, float):
                setattr(module, name, 0.0)
    disable_layer_drop(model)


@pytest.fixture
def training(load, draw_waveforms, model_type):
    """A model in training mode without any randomness of its own, and a batch for it."""
    model, processor = load(model_type)
    disable_native_spec_augment(model)
    silence_dropout(model)
    model.train()
    prepared = prepare_features(processor, draw_waveforms(16000, 7000), 16000)
    frames = hidden_lengths(model.config, prepared.lengths)
    return model, prepared.inputs, frames


def hidden_states(model, inputs):
    """What enters the encoder."""
    seen = []
    module = base_encoder(model).get_submodule(ctc_encoder(model).feature_module)
    handle = module.register_forward_hook(
        lambda _, __, out: seen.append(out[0] if isinstance(out, tuple) else out)
    )
    logits = model(**inputs).logits
    handle.remove()
    return seen[0].detach(), logits.detach()


def random_masks(frames, hidden_size, seed=0):
    generator = np.random.default_rng(seed)
    time = torch.from_numpy(generator.random((len(frames), int(frames.max()))) < 0.4)
    feature = torch.from_numpy(generator.random((len(frames), hidden_size)) < 0.3)
    return time, feature


def test_masked_frames_become_the_mask_vector_and_features_zero(training):
    model, inputs, frames = training
    plain, _ = hidden_states(model, inputs)
    masking = HiddenStateMasking(model)
    time, feature = random_masks(frames, plain.shape[-1])
    masking.set_masks(time, feature, lengths=frames)
    masked, _ = hidden_states(model, inputs)
    vector = masking.mask_vector
    fill = torch.zeros(plain.shape[-1]) if vector is None else vector.detach()
    for i, length in enumerate(frames.tolist()):
        for t in range(plain.shape[1]):
            expected = fill.clone() if time[i, t] and t < length else plain[i, t].clone()
            expected[feature[i]] = 0.0
            assert torch.equal(masked[i, t], expected)


def test_only_wav2vec2s_relatives_have_a_mask_vector(training, model_type):
    model, _, _ = training
    assert (HiddenStateMasking(model).mask_vector is None) == (model_type == "parakeet_ctc")


def test_masks_behind_the_valid_frames_change_nothing(training):
    model, inputs, frames = training
    plain, _ = hidden_states(model, inputs)
    behind = torch.arange(plain.shape[1]) >= frames[:, None]
    masking = HiddenStateMasking(model)
    masking.set_masks(behind, lengths=frames)
    masked, _ = hidden_states(model, inputs)
    assert behind.any()
    assert torch.equal(masked, plain)


def test_without_masks_nothing_happens(training):
    model, inputs, _ = training
    plain, logits = hidden_states(model, inputs)
    masking = HiddenStateMasking(model)
    for masks in (None, (None, None)):
        if masks is not None:
            masking.set_masks(*masks)
        again, same = hidden_states(model, inputs)
        assert torch.equal(again, plain)
        assert torch.equal(same, logits)


def test_masks_count_once_and_never_in_evaluation(training):
    model, inputs, frames = training
    plain, _ = hidden_states(model, inputs)
    time, feature = random_masks(frames, plain.shape[-1])
    masking = HiddenStateMasking(model)
    masking.set_masks(time, feature)
    assert not torch.equal(hidden_states(model, inputs)[0], plain)
    assert torch.equal(hidden_states(model, inputs)[0], plain)
    model.eval()
    masking.set_masks(time, feature)
    assert torch.equal(hidden_states(model, inputs)[0], plain)
    model.train()
    assert torch.equal(hidden_states(model, inputs)[0], plain)


def test_a_frozen_front_end_is_masked_too(training):
    model, inputs, frames = training
    freeze_feature_encoder(model)
    plain, _ = hidden_states(model, inputs)
    masking = HiddenStateMasking(model)
    masking.set_masks(random_masks(frames, plain.shape[-1])[0])
    assert not torch.equal(hidden_states(model, inputs)[0], plain)


def test_it_reaches_through_adapters(training):
    model, inputs, frames = training
    adapted = add_lora(model, rank=2).train()
    plain, _ = hidden_states(adapted, inputs)
    masking = HiddenStateMasking(adapted)
    masking.set_masks(random_masks(frames, plain.shape[-1])[0])
    assert not torch.equal(hidden_states(adapted, inputs)[0], plain)


@pytest.mark.parametrize("model_type", ["wav2vec2", "hubert", "wavlm", "wav2vec2-bert"])
def test_the_mask_vector_trains_only_where_it_is_used(training):
    model, inputs, frames = training
    vector = base_encoder(model).masked_spec_embed
    assert not vector.requires_grad
    model(**inputs).logits.square().mean().backward()
    assert vector.grad is None
    masking = HiddenStateMasking(model)
    masking.set_masks(random_masks(frames, vector.numel())[0])
    model(**inputs).logits.square().mean().backward()
    assert vector.grad.abs().sum() > 0
    masking.remove()
    disable_native_spec_augment(model)
    HiddenStateMasking(model, train_mask_vector=False)
    assert not vector.requires_grad


def test_removing_the_hook_ends_it(training):
    model, inputs, frames = training
    plain, _ = hidden_states(model, inputs)
    masking = HiddenStateMasking(model)
    masking.set_masks(random_masks(frames, plain.shape[-1])[0])
    masking.remove()
    assert torch.equal(hidden_states(model, inputs)[0], plain)


def test_masks_of_another_shape_are_refused(training):
    model, inputs, frames = training
    masking = HiddenStateMasking(model)
    masking.set_masks(torch.ones(2, int(frames.max()) + 1, dtype=torch.bool))
    with pytest.raises(DataError, match="time mask"):
        model(**inputs)
    masking.set_masks(None, torch.ones(2, 3, dtype=torch.bool))
    with pytest.raises(DataError, match="feature mask"):
        model(**inputs)
    masking.set_masks(torch.ones(2, int(frames.max())))
    with pytest.raises(DataError, match="torch.bool"):
        model(**inputs)


def test_the_models_own_masking_draws_nothing(load, draw_waveforms, model_type):
    model, processor = load(model_type)
    prepared = prepare_features(processor, draw_waveforms(16000), 16000)
    silence_dropout(model)
    model.train()
    if model_type != "parakeet_ctc":
        model.config.mask_time_prob = base_encoder(model).config.mask_time_prob = 0.6
        np.random.seed(0)
        masked = model(**prepared.inputs).logits
        assert not torch.equal(masked, model(**prepared.inputs).logits)
    disable_native_spec_augment(model)
    state = np.random.get_state()[1].copy()
    first = model(**prepared.inputs).logits
    assert torch.equal(model(**prepared.inputs).logits, first)
    assert np.array_equal(np.random.get_state()[1], state)


def test_very_short_clips_train(load, draw_waveforms, model_type):
    """The models' own masking raises when a clip is shorter than one mask."""
    model, processor = load(model_type)
    disable_native_spec_augment(model)
    masking = HiddenStateMasking(model.train())
    prepared = prepare_features(processor, draw_waveforms(2000, 1000), 16000)
    frames = hidden_lengths(model.config, prepared.lengths)
    masking.set_masks(*random_masks(frames, 24), lengths=frames)
    model(**prepared.inputs).logits.sum().backward()
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in model.parameters())


def test_layer_drop_is_off_everywhere(load, draw_waveforms, model_type):
    model, processor = load(model_type, layerdrop=0.9)
    inputs = prepare_features(processor, draw_waveforms(8000, 8000), 16000).inputs
    disable_native_spec_augment(model)
    disable_layer_drop(model)
    model.train()
    model(**inputs).logits.square().mean().backward()
    without = [
        name
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and parameter.grad is None
    ]
    assert without == []


def test_masks_are_drawn_by_key_within_the_valid_frames():
    source = SpecAugment(time_masks=3, time_mask_frames=8, time_mask_max_fraction=0.5,
                         frequency_masks=2, frequency_mask_bins=6)  # fmt: skip
    keys = [SampleKey(0, 1, 2, 3), SampleKey(0, 1, 3, 9), SampleKey(0, 1, 4, 5)]
    lengths = torch.tensor([40, 12, 1])
    time, feature = draw_masks(source, lengths, 24, keys, ["a", "b", "c"])
    assert time.shape == (3, 40)
    assert feature.shape == (3, 24)
    assert time.any()
    assert feature.any()
    for row, length in zip(time, lengths, strict=True):
        assert not row[length:].any()
    # Alone, in another batch: the same draw.
    alone, features_alone = draw_masks(source, [12], 24, keys[1:2], ["b"])
    assert torch.equal(alone[0], time[1, :12])
    assert torch.equal(features_alone[0], feature[1])
    again, _ = draw_masks(source, [12], 24, [SampleKey(0, 2, 3, 9)], ["b"])
    assert not torch.equal(again, alone)
