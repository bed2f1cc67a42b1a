"""From items to batches, one collator a layout; every draw is keyed by sample."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from voicehub.data.keyed_random import derive_seed
from voicehub.data.packing import pack_lengths
from voicehub.errors import DataError
from voicehub.losses.linear_cross_entropy import IGNORED
from voicehub_codec_lm.data.dataset import CodecItem
from voicehub_codec_lm.layouts import (
    DepthFrame,
    FlatVocabulary,
    delay_frame,
    depth_frame,
    flat_frame,
)


class CodecCollator(ABC):
    """Frames items and pads them."""

    #: Draws by key alone.
    deterministic = True

    def __call__(self, items: Sequence[CodecItem]) -> dict[str, Any]:
        """Return the batch.

        Raises:
            DataError: there is no item.
        """
        if not items:
            raise DataError("a batch needs at least one utterance.")
        tensors, padded = self._tensors(items)
        seconds = [item.seconds for item in items]
        info = {
            "ids": [item.id for item in items],
            "texts": [item.text for item in items],
            "keys": [item.key for item in items],
            "audio_seconds": sum(seconds),
            "padded_seconds": max(sum(seconds), padded),
        }
        return {**tensors, "batch_info": info}

    @abstractmethod
    def _tensors(self, items: Sequence[CodecItem]) -> tuple[dict[str, Tensor], float]:
        """Tensors of a batch, and the seconds that it is as large as."""

    @abstractmethod
    def resume_fingerprint(self) -> dict[str, Any]:
        """JSON that changes when batches would."""


class DelayCollator(CodecCollator):
    """The delay layout.

    A batch holds ``codes`` and ``labels`` int64 (B, codebooks, steps), ``prompt_ids`` and
    ``prompt_mask`` int64 (B, tokens), and ``keep`` float32 (B,), 0 where the text is not seen.

    Args:
        start, end: codes around an utterance.
        condition_dropout: share of draws that do not see their text; outside training all do.
    """

    def __init__(self, start: int, end: int, condition_dropout: float = 0.0) -> None:
        self.start, self.end, self.condition_dropout = start, end, condition_dropout

    def _tensors(self, items: Sequence[CodecItem]) -> tuple[dict[str, Tensor], float]:
        frames = [delay_frame(item.codes, start=self.start, end=self.end) for item in items]
        steps = max(frame.inputs.shape[1] for frame in frames)
        tokens = max(len(item.prompt) for item in items)
        shape = (len(items), frames[0].inputs.shape[0], steps)
        codes, labels = torch.full(shape, self.start), torch.full(shape, IGNORED)
        ids = torch.zeros(len(items), tokens, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, (item, frame) in enumerate(zip(items, frames, strict=True)):
            length = frame.inputs.shape[1]
            codes[row, :, :length], labels[row, :, :length] = frame.inputs, frame.labels
            ids[row, : len(item.prompt)] = torch.tensor(item.prompt)
            mask[row, : len(item.prompt)] = 1
        keep = torch.tensor([float(self._sees_text(item)) for item in items])
        tensors = {"codes": codes, "labels": labels, "prompt_ids": ids, "prompt_mask": mask}
        return {**tensors, "keep": keep}, len(items) * max(item.seconds for item in items)

    def _sees_text(self, item: CodecItem) -> bool:
        if item.key is None or not self.condition_dropout:
            return True
        drawn = derive_seed("codec-lm", tuple(item.key), item.id, "condition") % (1 << 32)
        return drawn >= self.condition_dropout * (1 << 32)

    def resume_fingerprint(self) -> dict[str, Any]:
        return {
            "start": self.start,
            "end": self.end,
            "condition_dropout": self.condition_dropout,
        }


class PackingCollator(CodecCollator):
    """Rows of one utterance each, or of several that see nothing of each other.

    ``segments`` int64 (B, steps) numbers the utterances of a row from 1, 0 in the padding;
    ``positions`` int64 (B, steps) count from 0 within an utterance.

    Args:
        pack_steps: most steps of a row with several utterances; None packs nothing.
    """

    def __init__(self, pack_steps: int | None = None) -> None:
        self.pack_steps = pack_steps

    def _placed(self, lengths: Sequence[int]) -> tuple[list[tuple[int, int]], dict[str, Tensor]]:
        """Row and first step of every utterance, and the tensors that say so."""
        rows = (
            [[item] for item in range(len(lengths))]
            if self.pack_steps is None
            else pack_lengths(lengths, self.pack_steps)
        )
        steps = max(sum(lengths[item] for item in row) for row in rows)
        segments = torch.zeros(len(rows), steps, dtype=torch.long)
        positions = torch.zeros_like(segments)
        places = [(0, 0)] * len(lengths)
        for number, row in enumerate(rows):
            first = 0
            for segment, item in enumerate(row, 1):
                length = lengths[item]
                segments[number, first : first + length] = segment
                positions[number, first : first + length] = torch.arange(length)
                places[item] = (number, first)
                first += length
        return places, {"segments": segments, "positions": positions}

    @staticmethod
    def _padded_seconds(items: Sequence[CodecItem], segments: Tensor) -> float:
        """Seconds that the batch would last if its padding spoke."""
        share = float((segments > 0).float().mean())
        return sum(item.seconds for item in items) / max(share, 1e-9)


class FlatCollator(PackingCollator):
    """The flat layout: ``input_ids`` and ``labels`` int64 (B, steps).

    Args:
        vocabulary: token ids.
        text_labels: ask for the prompt's own tokens too.
        pack_steps: see the base.
    """

    def __init__(
        self,
        vocabulary: FlatVocabulary,
        *,
        text_labels: bool = False,
        pack_steps: int | None = None,
    ) -> None:
        super().__init__(pack_steps)
        self.vocabulary, self.text_labels = vocabulary, text_labels

    def _tensors(self, items: Sequence[CodecItem]) -> tuple[dict[str, Tensor], float]:
        frames = [
            flat_frame(item.prompt, item.codes, self.vocabulary, text_labels=self.text_labels)
            for item in items
        ]
        places, tensors = self._placed([len(frame.input_ids) for frame in frames])
        ids = torch.zeros_like(tensors["segments"])
        labels = torch.full_like(ids, IGNORED)
        for (row, first), frame in zip(places, frames, strict=True):
            span = slice(first, first + len(frame.input_ids))
            ids[row, span], labels[row, span] = frame.input_ids, frame.labels
        padded = self._padded_seconds(items, tensors["segments"])
        return {"input_ids": ids, "labels": labels, **tensors}, padded

    def resume_fingerprint(self) -> dict[str, Any]:
        sizes = vars(self.vocabulary)
        return {**sizes, "text_labels": self.text_labels, "pack_steps": self.pack_steps}


class DepthCollator(PackingCollator):
    """The depth layout.

    ``text_ids``, ``labels`` int64 and ``is_audio`` bool (B, steps), ``codes`` int64 (B, steps,
    codebooks); ``depth_rows`` int64 (n,) numbers the steps, counted through the batch, after which
    the depth decoder is trained, ``depth_codes`` int64 (n, codebooks) are the frames that follow,
    and ``depth_weights`` float32 (n,) what each counts.

    Args:
        end: code that ends every codebook.
        depth_share: one frame of so many trains the depth decoder; outside training all count.
        pack_steps: see the base.
    """

    def __init__(self, end: int, depth_share: int, pack_steps: int | None = None) -> None:
        super().__init__(pack_steps)
        self.end, self.depth_share = end, depth_share

    def _tensors(self, items: Sequence[CodecItem]) -> tuple[dict[str, Tensor], float]:
        frames = [self._frame(item) for item in items]
        places, tensors = self._placed([len(frame.labels) for frame in frames])
        shape, books = tensors["segments"].shape, frames[0].codes.shape[1]
        text_ids, is_audio = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=bool)
        labels = torch.full(shape, IGNORED)
        codes = torch.zeros(*shape, books, dtype=torch.long)
        depth: list[tuple[Tensor, Tensor, Tensor]] = []
        for (row, first), frame in zip(places, frames, strict=True):
            span = slice(first, first + len(frame.labels))
            text_ids[row, span], is_audio[row, span] = frame.text_ids, frame.is_audio
            codes[row, span], labels[row, span] = frame.codes, frame.labels
            rows = frame.depth_steps + row * shape[1] + first
            weights = torch.full((len(rows),), frame.depth_weight)
            depth.append((rows, frame.depth_codes, weights))
        chosen, asked, counts = (torch.cat(part) for part in zip(*depth, strict=True))
        made = {"text_ids": text_ids, "codes": codes, "is_audio": is_audio, "labels": labels}
        made |= {"depth_rows": chosen, "depth_codes": asked, "depth_weights": counts, **tensors}
        return made, self._padded_seconds(items, tensors["segments"])

    def _frame(self, item: CodecItem) -> DepthFrame:
        key = None if item.key is None else (*tuple(item.key), item.id)
        return depth_frame(item.prompt, item.codes, end=self.end, key=key, share=self.depth_share)

    def resume_fingerprint(self) -> dict[str, Any]:
        return {"end": self.end, "depth_share": self.depth_share, "pack_steps": self.pack_steps}
