"""The objective over a feature store: the path, an oracle, the frames that count."""

from __future__ import annotations

import pytest
import torch

from voicehub.adapters.context import TrainingContext
from voicehub_flow.multimodal.conformance import MMAudioCase


@pytest.fixture(scope="module")
def case():
    return MMAudioCase()


@pytest.fixture(scope="module")
def batch(case):
    return case.collate([case.item(length, seed) for length, seed in ((5, 1), (12, 2), (9, 3))])


@pytest.fixture
def adapter(case):
    made = case.build()
    made.setup()
    return made


def output_of(adapter, batch, **changes):
    inputs = {key: value for key, value in batch.items() if key != "batch_info"} | changes
    adapter.train_mode()
    context = TrainingContext(adapter.phases[0], inputs, 0, 0.0, True, batch["batch_info"])
    return adapter.execute_training_phase(context)


def latents_of(adapter, batch):
    """A draw of the latents, channels of mean 0 and deviation 1."""
    drawn = batch["mean"] + batch["std"] * batch["epsilon"]
    return (drawn - adapter.module.latent_mean) / adapter.module.latent_std


def answer(adapter, monkeypatch, velocity):
    """Make the network predict this velocity; returns what it is shown."""
    shown = {}

    def forward(moving, time, conditions, mask=None):
        shown.update(moving=moving, time=time, mask=mask)
        return velocity

    monkeypatch.setattr(adapter.module, "forward", forward)
    return shown


def test_an_oracle_has_no_loss(adapter, batch, monkeypatch):
    oracle = (latents_of(adapter, batch) - batch["noise"]).requires_grad_()
    answer(adapter, monkeypatch, oracle)
    assert float(output_of(adapter, batch).loss.detach()) < 1e-12


def test_the_network_sees_the_path_of_normalised_latents(adapter, batch, monkeypatch):
    shown = answer(adapter, monkeypatch, torch.zeros_like(batch["mean"]).requires_grad_())
    output_of(adapter, batch)
    time = batch["time"][:, None, None]
    expected = (1 - time) * batch["noise"] + time * latents_of(adapter, batch)
    valid = batch["mask"]
    torch.testing.assert_close(shown["moving"][valid], expected[valid])
    assert torch.equal(shown["time"], batch["time"]) and torch.equal(shown["mask"], valid)
    # The latents are drawn around their means, and drawn anew with other numbers.
    other = answer(adapter, monkeypatch, torch.zeros_like(batch["mean"]).requires_grad_())
    output_of(adapter, batch, epsilon=batch["epsilon"] + 1.0)
    shift = time * batch["std"] / adapter.module.latent_std
    torch.testing.assert_close(other["moving"][valid], (expected + shift)[valid])


def test_the_loss_is_the_mean_over_valid_frames(adapter, batch, monkeypatch):
    generator = torch.Generator().manual_seed(1)
    made = torch.randn(batch["mean"].shape, generator=generator).requires_grad_()
    answer(adapter, monkeypatch, made)
    found = output_of(adapter, batch)
    apart = (made - (latents_of(adapter, batch) - batch["noise"])).detach().double().square()
    frames, channels = batch["frames"].tolist(), made.shape[2]
    total = sum(float(apart[row, :count].sum()) for row, count in enumerate(frames))
    assert int(found.num_items) == sum(frames) * channels
    assert float(found.loss.detach()) == pytest.approx(total / (sum(frames) * channels), rel=1e-5)
    rubbish = batch["noise"].masked_fill(~batch["mask"][..., None], float("nan"))
    assert torch.equal(output_of(adapter, batch, noise=rubbish).loss, found.loss)
