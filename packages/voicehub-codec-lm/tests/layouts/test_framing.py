"""What each layout reads and is asked for."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from voicehub.errors import DataError
from voicehub.losses.linear_cross_entropy import IGNORED
from voicehub_codec_lm.layouts import (
    FlatVocabulary,
    block_mask,
    delay_frame,
    depth_frame,
    depth_frames,
    flat_frame,
    undelay,
)


def make(codebooks, frames, size=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, size, (codebooks, frames), generator=generator)


# -- flat ------------------------------------------------------------------------------------


@given(st.integers(1, 16), st.integers(0, 12), st.integers(1, 9), st.integers(0, 99))
def test_flat_tokens_and_codes_are_inverses(codebooks, frames, size, seed):
    vocabulary = FlatVocabulary(7, codebooks, size)
    codes = make(codebooks, frames, size, seed)
    tokens = vocabulary.tokens(codes)
    assert torch.equal(vocabulary.codes(tokens), codes)
    assert torch.equal(vocabulary.tokens(vocabulary.codes(tokens)), tokens)
    books = vocabulary.codebook_of(tokens)
    assert books.tolist() == [k for _ in range(frames) for k in range(codebooks)]
    assert all(tokens < vocabulary.size)
    for position, token in enumerate(tokens.tolist()):
        low, high = vocabulary.allowed(position)
        assert low <= token < high


@pytest.mark.parametrize("text_labels", [False, True])
def test_flat_frame_by_hand(text_labels):
    vocabulary = FlatVocabulary(10, 2, 5)
    frame = flat_frame([3, 4], torch.tensor([[0, 1], [2, 3]]), vocabulary, text_labels=text_labels)
    audio = [12, 12 + 5 + 2, 12 + 1, 12 + 5 + 3]
    assert frame.input_ids.tolist() == [3, 4, 10, *audio]
    first = 4 if text_labels else IGNORED
    assert frame.labels.tolist() == [first, IGNORED, *audio, 11]
    assert vocabulary.codebook_of(torch.tensor([3, 11, 12, 17])).tolist() == [-1, 2, 0, 1]


def test_an_unfinished_frame_is_left_out():
    vocabulary = FlatVocabulary(10, 2, 5)
    tokens = vocabulary.tokens(make(2, 3))
    assert torch.equal(vocabulary.codes(tokens[:-1]), make(2, 3)[:, :2])


# -- delay -----------------------------------------------------------------------------------


def test_delay_frame_by_hand():
    frame = delay_frame(torch.tensor([[1, 2], [3, 4]]), start=9, end=8)
    assert frame.inputs.tolist() == [[9, 1, 2, 8], [9, 9, 3, 4]]
    assert frame.labels.tolist() == [[1, 2, 8, IGNORED], [IGNORED, 3, 4, 8]]


@given(st.integers(1, 16), st.integers(0, 20), st.integers(0, 99))
def test_every_codebook_is_asked_for_its_codes_and_its_end(codebooks, frames, seed):
    codes = make(codebooks, frames, seed=seed)
    frame = delay_frame(codes, start=9, end=8)
    assert frame.inputs.shape == frame.labels.shape == (codebooks, frames + codebooks)
    asked = undelay(frame.labels)
    assert torch.equal(asked[:, :-1], codes) and bool((asked[:, -1] == 8).all())
    assert int((frame.labels != IGNORED).sum()) == codebooks * (frames + 1)
    # What is read is what was asked for one step before.
    said = frame.labels[:, :-1]
    read = frame.inputs[:, 1:]
    assert torch.equal(read[said != IGNORED], said[said != IGNORED])
    assert bool((read[said == IGNORED] == 9).all())


# -- depth ------------------------------------------------------------------------------------


def test_depth_frame_by_hand():
    frame = depth_frame([5, 6], torch.tensor([[1, 2], [3, 4]]), end=0, key=None)
    assert frame.text_ids.tolist() == [5, 6, 0, 0]
    assert frame.is_audio.tolist() == [False, False, True, True]
    assert frame.codes.tolist() == [[0, 0], [0, 0], [1, 3], [2, 4]]
    assert frame.labels.tolist() == [IGNORED, 1, 2, 0]
    assert frame.depth_steps.tolist() == [1, 2, 3]
    assert frame.depth_codes.tolist() == [[1, 3], [2, 4], [0, 0]]
    assert frame.depth_weight == 1.0


@given(st.integers(0, 100), st.integers(0, 20), st.integers(1, 16))
def test_depth_frames_are_a_keyed_share(frames, seed, share):
    chosen = depth_frames(frames + 1, (seed, "id"), share)
    assert len(chosen) == math.ceil((frames + 1) / share) == len(set(chosen.tolist()))
    assert torch.equal(chosen, depth_frames(frames + 1, (seed, "id"), share))
    frame = depth_frame([1], make(2, frames), end=0, key=(seed, "id"), share=share)
    assert len(frame.depth_steps) * frame.depth_weight == pytest.approx(frames + 1)


def test_every_frame_is_drawn_equally_often():
    counts = torch.zeros(32)
    for draw in range(400):
        counts[depth_frames(32, (draw, "id"))] += 1
    assert counts.sum() == 800 and counts.min() > 8 and counts.max() < 50


def test_an_empty_prompt_is_refused():
    with pytest.raises(DataError, match="at least one token"):
        depth_frame([], make(2, 3), end=0, key=None)


# -- packing ------------------------------------------------------------------------------------


def test_the_mask_keeps_utterances_apart():
    mask = block_mask(torch.tensor([[1, 1, 2, 0]]))[0, 0]
    assert mask.int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
