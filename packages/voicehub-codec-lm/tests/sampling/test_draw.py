"""Temperature, top-k, top-p, repetition penalty and guidance, by their definitions."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from voicehub_codec_lm.sampling.draw import draw, guided, nucleus, penalised, top_k
from voicehub_codec_lm.sampling.settings import SamplingSettings

CHANCES = torch.tensor([0.5, 0.25, 0.15, 0.07, 0.03])


def shares(settings, recent=None, draws=20_000):
    logits = CHANCES.log().expand(draws, -1)
    found = draw(logits, settings, torch.Generator().manual_seed(0), recent)
    return torch.bincount(found, minlength=5) / draws


def test_plain_draws_follow_the_distribution():
    assert torch.allclose(shares(SamplingSettings()), CHANCES, atol=0.012)


def test_temperature_sharpens():
    expected = (CHANCES.log() / 0.5).softmax(0)
    assert torch.allclose(shares(SamplingSettings(temperature=0.5)), expected, atol=0.012)
    assert shares(SamplingSettings(temperature=0), draws=50).tolist() == [1, 0, 0, 0, 0]


def test_top_k_and_top_p_keep_the_likeliest():
    found = shares(SamplingSettings(top_k=2))
    assert torch.allclose(found, torch.tensor([2 / 3, 1 / 3, 0, 0, 0]), atol=0.012)
    found = shares(SamplingSettings(top_p=0.8))
    assert torch.allclose(found[:3], CHANCES[:3] / 0.9, atol=0.012) and not found[3:].any()


@given(st.floats(0.01, 1.0), st.integers(0, 99))
def test_the_nucleus_is_the_smallest_set_of_that_share(share, seed):
    logits = torch.randn(1, 9, generator=torch.Generator().manual_seed(seed))
    chances = logits.softmax(-1)[0]
    kept = nucleus(logits, share)[0] > -math.inf
    if share < 1.0:
        assert float(chances[kept].sum()) >= share - 1e-5
        assert float(chances[kept].sum() - chances[kept].min()) < share + 1e-5
        assert float(chances[kept].min()) >= float(chances[~kept].max() if (~kept).any() else 0)


@given(st.integers(1, 12), st.integers(0, 99))
def test_top_k_keeps_so_many(count, seed):
    logits = torch.randn(2, 9, generator=torch.Generator().manual_seed(seed))
    kept = top_k(logits, count) > -math.inf
    assert kept.sum(1).tolist() == [min(count, 9)] * 2


def test_the_penalty_moves_recent_codes_down_once():
    logits = torch.tensor([[2.0, -1.0, 0.5]])
    found = penalised(logits, torch.tensor([[0, 1, 0]]), 2.0)
    assert found.tolist() == [[1.0, -2.0, 0.5]]
    assert penalised(logits, None, 2.0) is logits


def test_a_heavy_penalty_stops_repetition():
    recent = torch.zeros(20_000, 1, dtype=torch.long)
    logits = torch.tensor([3.0, 1.0]).expand(20_000, -1)
    settings = SamplingSettings(repetition_penalty=100.0)
    found = draw(logits, settings, torch.Generator().manual_seed(0), recent)
    assert float((found == 0).float().mean()) == pytest.approx(1 / (1 + math.exp(0.97)), abs=0.02)


def test_a_code_that_cannot_be_is_never_drawn():
    logits = torch.tensor([[-math.inf, 0.0, -math.inf]]).expand(5000, -1)
    found = draw(logits, SamplingSettings(), torch.Generator().manual_seed(0))
    assert bool((found == 1).all())


def test_guidance_by_its_formula():
    conditioned, null = torch.tensor([2.0]), torch.tensor([0.5])
    assert guided(conditioned, null, 1.0) == conditioned
    assert float(guided(conditioned, null, 3.0)) == pytest.approx(0.5 + 3.0 * 1.5)
    assert guided(conditioned, null, 0.0) == null
