"""Delay and undelay are inverses of each other."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from voicehub.errors import DataError
from voicehub_codec_lm.layouts import delay, delayed_length, delayed_mask, undelay

books, frames = st.integers(1, 16), st.integers(0, 40)


def draw(codebooks, length, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 9, (codebooks, length), generator=generator)


@given(books, frames, st.integers(0, 99))
def test_undelay_takes_delay_back(codebooks, length, seed):
    codes = draw(codebooks, length, seed)
    moved = delay(codes, fill=-1)
    assert moved.shape == (codebooks, delayed_length(length, codebooks))
    assert torch.equal(undelay(moved), codes)


@given(books, frames, st.integers(0, 99))
def test_delay_takes_undelay_back_on_its_image(codebooks, length, seed):
    moved = delay(draw(codebooks, length, seed), fill=-1)
    assert torch.equal(delay(undelay(moved), fill=-1), moved)


@given(books, frames)
def test_codes_stand_on_the_diagonal_and_nowhere_else(codebooks, length):
    codes = torch.arange(codebooks * length).reshape(codebooks, length)
    moved = delay(codes, fill=-1)
    for book in range(codebooks):
        for step in range(moved.shape[1]):
            inside = 0 <= step - book < length
            assert moved[book, step] == (codes[book, step - book] if inside else -1)
    assert torch.equal(delayed_mask(length, codebooks), moved >= 0)


def test_batches_are_delayed_row_by_row():
    codes = torch.arange(24).reshape(2, 3, 4)
    rows = torch.stack([delay(row, -1) for row in codes])
    assert torch.equal(delay(codes, -1), rows) and torch.equal(undelay(rows), codes)


def test_too_few_steps_are_refused():
    with pytest.raises(DataError, match="1 steps are fewer than the 2"):
        undelay(torch.zeros(3, 1))
