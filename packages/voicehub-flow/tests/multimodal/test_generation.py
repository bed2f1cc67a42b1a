"""Generation: guidance, seeds, prompts over the run's own stores."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from voicehub.errors import ConfigurationError, DataError
from voicehub.models.sampling import Prompt
from voicehub_flow.multimodal.conformance import SHAPES, tiny_model, write_tiny_store
from voicehub_flow.multimodal.generation import GenerationConditions
from voicehub_flow.store.config import StoreRunConfig
from voicehub_flow.store.dataset import StoreDataset


@pytest.fixture(scope="module")
def model():
    """Random weights, loud enough that conditions are heard."""
    made = tiny_model(generation={"steps": 3})
    made.load()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in made.model.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return made


@pytest.fixture(scope="module")
def conditions():
    generator = torch.Generator().manual_seed(2)

    def draw(*shape):
        return torch.randn(1, *shape, generator=generator)

    return GenerationConditions(
        draw(SHAPES.text_tokens, SHAPES.text_dim),
        draw(SHAPES.clip_frames, SHAPES.clip_dim),
        draw(SHAPES.sync_frames, SHAPES.sync_dim),
    )


def test_guidance_0_is_the_null_model_and_1_the_conditional_one(model, conditions):
    null = model.generate(GenerationConditions(), guidance_scale=1.0)
    assert torch.equal(model.generate(conditions, guidance_scale=0.0), null)
    whole = model.generate(conditions, guidance_scale=1.0)
    assert not torch.allclose(whole, null)
    # One Euler step is linear in the guidance.
    one, two, three = (
        model.generate(conditions, guidance_scale=g, steps=1) for g in (0.0, 1.0, 3.0)
    )
    torch.testing.assert_close(three, one + 3.0 * (two - one), rtol=1e-4, atol=1e-4)


def test_equal_seeds_give_equal_latents_in_any_batch(model, conditions):
    alone = model.generate(conditions, seeds=(7,))
    beside = model.generate(conditions, seeds=(3, 7))
    torch.testing.assert_close(beside[1:], alone, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(beside[0], beside[1])
    assert torch.equal(alone, model.generate(conditions, seeds=(7,)))


def test_lengths_and_solvers_are_the_callers(model, conditions):
    found = model.generate(conditions, num_frames=30, method="midpoint")
    assert found.shape == (1, 30, SHAPES.latent_dim)
    assert model.generate(conditions).shape == (1, SHAPES.latent_frames, SHAPES.latent_dim)
    assert not model.model.training


def test_generated_latents_are_those_of_the_store_not_normalised_ones(model):
    mean, std = torch.tensor([1.0, -2.0, 30.0]), torch.tensor([0.5, 1.0, 10.0])
    plain = model.generate(GenerationConditions(), guidance_scale=1.0)
    own_mean, own_std = model.model.latent_mean.clone(), model.model.latent_std.clone()
    try:
        model.model.latent_mean.copy_(mean)
        model.model.latent_std.copy_(std)
        moved = model.generate(GenerationConditions(), guidance_scale=1.0)
    finally:
        model.model.latent_mean.copy_(own_mean)
        model.model.latent_std.copy_(own_std)
    torch.testing.assert_close(moved, (plain - own_mean) / own_std * std + mean)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (GenerationConditions(clip=torch.zeros(1, 3, 5)), "give both, or neither"),
        (GenerationConditions(text=torch.zeros(1, 3, 6)), r"expected \(samples, 2, 6\)"),
        (GenerationConditions(text=torch.zeros(2, 2, 6)), "2 samples, and 1 seeds"),
    ],
)
def test_conditions_that_do_not_fit_are_refused(model, wrong, message):
    with pytest.raises(ConfigurationError, match=message):
        model.generate(wrong)


# -- prompts -------------------------------------------------------------------------------------


@pytest.fixture
def of_a_run(model, tmp_path, monkeypatch):
    """The model with the stores of a run, sound replaced by the latents themselves."""
    write_tiny_store(tmp_path / "seen", 5, 0)
    write_tiny_store(tmp_path / "unseen", 4, 1)
    config = StoreRunConfig.model_validate(
        {
            "family": "flow",
            "model_type": "mmaudio",
            "model": {"generation": {"steps": 2, "guidance_scale": 1.0}},
            "data": {
                "train": str(tmp_path / "seen"),
                "eval": {"held": str(tmp_path / "unseen")},
            },
        }
    )
    before = model.config
    model.configure_sampling(config)
    monkeypatch.setattr(type(model), "sampling_rate", 100)
    monkeypatch.setattr(
        model, "decode", lambda latents: [each.flatten().numpy() for each in latents]
    )
    generator = torch.Generator().manual_seed(4)
    words = torch.randn(SHAPES.text_tokens, SHAPES.text_dim, generator=generator)
    monkeypatch.setattr(model, "encode_texts", lambda texts: words[None])
    yield model, words
    model.config, model._sets = before, []


def test_a_prompt_names_a_clip_of_the_runs_own_stores(of_a_run):
    model, words = of_a_run
    (held, _) = model._sets
    item = StoreDataset([held])[2]
    both = GenerationConditions(item.text[None], item.clip[None], item.sync[None])
    frames = len(item.mean)
    assert frames < SHAPES.latent_frames
    given = {"num_frames": frames, "steps": 2, "guidance_scale": 1.0}
    expected = model.generate(both, seeds=(5,), **given)
    for name in ("clip-1-2", "held/clip-1-2"):
        found = model.sample(Prompt("a", features=name), seed=5)
        assert np.array_equal(found.waveform, expected.flatten().numpy())
    own_text = model.sample(Prompt("a", features="clip-1-2", text="other"), seed=5)
    mixed = GenerationConditions(words[None], item.clip[None], item.sync[None])
    expected = model.generate(mixed, seeds=(5,), **given)
    assert np.array_equal(own_text.waveform, expected.flatten().numpy())
    assert model.sample(Prompt("a", features="0-seen/clip-0-1"), seed=5).sampling_rate == 100


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (Prompt("p", features="clip-1-9"), "no clip 'clip-1-9' in held, 0-seen.*clip-1-"),
        (Prompt("p", text="x", speaker="a"), "has no speaker"),
        (Prompt("p", text="x", options={"step": 3}), "unknown option 'step'.*steps"),
    ],
)
def test_prompts_that_ask_for_the_unknown_are_refused(of_a_run, prompt, message):
    with pytest.raises(DataError, match=message):
        of_a_run[0].sample(prompt, seed=0)


def test_features_without_a_run_are_refused(model):
    with pytest.raises(DataError, match="sample with --run"):
        model.sample(Prompt("p", features="clip-1-2"), seed=0)
