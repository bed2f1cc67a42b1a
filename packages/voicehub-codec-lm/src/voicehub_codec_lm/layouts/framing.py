"""From a prompt and codes to model inputs, labels and weights: every layout's rules, in one place.

All framings return labels that are shifted already: ``labels[i]`` is what the model should say
after having read input ``i``. ``IGNORED`` stands where nothing is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from voicehub.data.keyed_random import torch_generator
from voicehub.errors import DataError
from voicehub.losses.linear_cross_entropy import IGNORED
from voicehub_codec_lm.layouts.delays import delay

#: The share of an utterance's frames that the depth decoder is trained on: one of so many.
DEPTH_SHARE = 16


# -- one stream: a causal language model with an audio vocabulary ------------------------------


@dataclass(frozen=True)
class FlatVocabulary:
    """Token ids of a language model whose vocabulary goes on with audio.

    Attributes:
        text_size: tokens of the text vocabulary; audio follows behind.
        codebooks: codes a frame.
        codebook_size: values of a code.
    """

    text_size: int
    codebooks: int
    codebook_size: int

    @property
    def start(self) -> int:
        """Token after the prompt, before the first code."""
        return self.text_size

    @property
    def end(self) -> int:
        """Token after the last code of the last frame: it ends all codebooks."""
        return self.text_size + 1

    @property
    def first_code(self) -> int:
        """Token of code 0 of codebook 0."""
        return self.text_size + 2

    @property
    def size(self) -> int:
        """Tokens in all."""
        return self.first_code + self.codebooks * self.codebook_size

    def tokens(self, codes: Tensor) -> Tensor:
        """Tokens (frames * codebooks,) of codes (codebooks, frames), frame after frame."""
        offsets = torch.arange(self.codebooks, device=codes.device) * self.codebook_size
        return (codes + offsets[:, None] + self.first_code).T.reshape(-1)

    def codes(self, tokens: Tensor) -> Tensor:
        """The inverse of :meth:`tokens`; an unfinished last frame is left out."""
        whole = len(tokens) // self.codebooks * self.codebooks
        frames = tokens[:whole].reshape(-1, self.codebooks).T
        offsets = torch.arange(self.codebooks, device=tokens.device) * self.codebook_size
        return frames - offsets[:, None] - self.first_code

    def codebook_of(self, labels: Tensor) -> Tensor:
        """Which codebook a label belongs to: -1 text, ``codebooks`` the end, else its number."""
        book = (labels - self.first_code).div(self.codebook_size, rounding_mode="floor")
        book = torch.where(labels == self.end, self.codebooks, book)
        return torch.where(labels < self.start, -1, book)

    def allowed(self, position: int) -> tuple[int, int]:
        """Tokens [low, high) that code number ``position`` after the start can be."""
        low = self.first_code + position % self.codebooks * self.codebook_size
        return low, low + self.codebook_size


class FlatFrame(NamedTuple):
    """One utterance: ``input_ids`` and ``labels``, int64 (prompt + 1 + frames * codebooks,)."""

    input_ids: Tensor
    labels: Tensor


def flat_frame(
    prompt: Sequence[int], codes: Tensor, vocabulary: FlatVocabulary, *, text_labels: bool = False
) -> FlatFrame:
    """Prompt, start token, codes frame after frame; the end token is asked for after the last.

    Args:
        prompt: text token ids.
        codes: int64 (codebooks, frames).
        vocabulary: token ids.
        text_labels: ask for the prompt's own tokens too.
    """
    text = torch.tensor(list(prompt), dtype=torch.long)
    audio = vocabulary.tokens(codes)
    input_ids = torch.cat([text, torch.tensor([vocabulary.start]), audio])
    labels = torch.cat([input_ids[1:], torch.tensor([vocabulary.end])])
    # The start token follows every prompt, and is never asked for.
    labels[max(0, len(text) - 1) if text_labels else 0 : len(text)] = IGNORED
    return FlatFrame(input_ids, labels)


# -- several heads a step: the delay pattern -----------------------------------------------------


class DelayFrame(NamedTuple):
    """One utterance: ``inputs`` and ``labels``, int64 (codebooks, frames + codebooks)."""

    inputs: Tensor
    labels: Tensor


def delay_frame(codes: Tensor, *, start: int, end: int) -> DelayFrame:
    """Codes under the delay pattern; each codebook ends with its own end code.

    Codebook k reads ``start`` until step k + 1, its codes from there on, its ``end`` one step
    later, and ``start`` again while later codebooks still speak.

    Args:
        codes: int64 (codebooks, frames).
        start: code before the first, and wherever a codebook is silent.
        end: code after the last frame.
    """
    books = codes.shape[0]
    ended = torch.cat([codes, codes.new_full((books, 1), end)], dim=1)
    steps = delay(ended, start)
    inputs = torch.cat([codes.new_full((books, 1), start), steps[:, :-1]], dim=1)
    return DelayFrame(inputs, delay(ended, IGNORED))


# -- backbone and depth decoder --------------------------------------------------------------------


class DepthFrame(NamedTuple):
    """One utterance of a backbone that reads whole frames.

    Attributes:
        text_ids: int64 (steps,), 0 where audio is read.
        codes: int64 (steps, codebooks), 0 where text is read.
        is_audio: bool (steps,).
        labels: int64 (steps,), codebook 0 of the next frame.
        depth_steps: int64 (n,), steps after which the depth decoder is trained.
        depth_codes: int64 (n, codebooks), the frames that follow them.
        depth_weight: what each of those counts, so that together they count as all frames do.
    """

    text_ids: Tensor
    codes: Tensor
    is_audio: Tensor
    labels: Tensor
    depth_steps: Tensor
    depth_codes: Tensor
    depth_weight: float


def depth_frame(
    prompt: Sequence[int],
    codes: Tensor,
    *,
    end: int,
    key: tuple[object, ...] | None,
    share: int = DEPTH_SHARE,
) -> DepthFrame:
    """Prompt, then frames; after the last frame one of ``end`` in every codebook is asked for.

    The depth decoder sees one frame of ``share``, rounded up, chosen by ``key``.

    Args:
        prompt: text token ids, at least one.
        codes: int64 (codebooks, frames).
        end: code that ends every codebook.
        key: of the choice; None takes every frame.
        share: one of so many frames.

    Raises:
        DataError: the prompt is empty, so that nothing could ask for the first frame.
    """
    if not prompt:
        raise DataError("a prompt needs at least one token before the first frame.")
    books, frames = codes.shape
    text, steps = len(prompt), len(prompt) + frames
    text_ids, is_audio = torch.zeros(steps, dtype=torch.long), torch.arange(steps) >= text
    text_ids[:text] = torch.tensor(list(prompt), dtype=torch.long)
    read = torch.zeros(steps, books, dtype=torch.long)
    read[text:] = codes.T
    asked = torch.cat([codes.T, codes.new_full((1, books), end)])
    labels = torch.full((steps,), IGNORED)
    labels[text - 1 :] = asked[:, 0]
    chosen = depth_frames(frames + 1, key, share)
    return DepthFrame(
        text_ids,
        read,
        is_audio,
        labels,
        chosen + text - 1,
        asked[chosen],
        (frames + 1) / max(1, len(chosen)),
    )


def depth_frames(count: int, key: tuple[object, ...] | None, share: int = DEPTH_SHARE) -> Tensor:
    """Sorted numbers of the frames that the depth decoder is trained on: ceil(count / share)."""
    if key is None:
        return torch.arange(count)
    wanted = -(-count // share)
    order = torch.randperm(count, generator=torch_generator("depth-frames", *key))
    return order[:wanted].sort().values


# -- packing ------------------------------------------------------------------------------------


def block_mask(segments: Tensor) -> Tensor:
    """Who may look at whom: bool (batch, 1, steps, steps), true where attention is allowed.

    Args:
        segments: int64 (batch, steps), the number of the utterance a step belongs to, 0 in the
            padding. A step sees itself and earlier ones of its own utterance; padding sees itself
            alone, since a row without anything to see has no softmax.
    """
    steps = segments.shape[1]
    same = segments[:, :, None] == segments[:, None, :]
    causal = torch.ones(steps, steps, dtype=torch.bool, device=segments.device).tril()
    seen = same & causal & (segments > 0)[:, :, None]
    own = torch.eye(steps, dtype=torch.bool, device=segments.device)
    return (seen | own)[:, None]
