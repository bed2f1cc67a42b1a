"""From items to batches: audio, and conversations with places for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from voicehub.data.keyed_random import torch_generator
from voicehub.errors import DataError
from voicehub.losses.linear_cross_entropy import IGNORED
from voicehub_asr_llm.data.dataset import AsrLlmItem
from voicehub_asr_llm.data.packing import Packing, Placed, place
from voicehub_asr_llm.decoders.chat import ChatFormat
from voicehub_asr_llm.encoders.base import FrontEnd
from voicehub_asr_llm.projectors.base import projected_lengths

#: Stands in ``input_ids`` where an input comes from the projector.
AUDIO = -1


class AsrLlmCollator:
    """Puts utterances into the chat template and into rows.

    A batch holds ``audio`` and ``audio_lengths`` (see the encoder), ``audio_frames`` int64 (B,);
    ``input_ids``, ``positions`` and ``labels`` int64 (rows, steps), labels shifted: what should
    be said after the step; ``audio_positions`` int64 (n,), steps, counted through all rows, whose
    input comes from the projector, and ``audio_sources`` int64 (n,), outputs of the projector,
    counted through the padded batch, that go there; ``label_counts`` int64 (B,); ``frame_keep``
    float32 (B, frames) where frames are dropped; and as lists of integers ``row_counts`` (valid
    rows), ``frame_counts`` and ``placeholders`` of each utterance.

    Args:
        front_end: of the encoder.
        chat: prompts and labels.
        stride: of the projector.
        packing, pack_tokens: see ``AsrLlmDataConfig``.
        frame_dropout: share of the frames of a training draw that are zeroed.
    """

    #: Draws by key alone.
    deterministic = True

    def __init__(
        self,
        front_end: FrontEnd,
        chat: ChatFormat,
        stride: int,
        *,
        packing: Packing = "none",
        pack_tokens: int = 2048,
        frame_dropout: float = 0.0,
    ) -> None:
        self.front_end, self.chat, self.stride = front_end, chat, stride
        self.packing, self.pack_tokens = packing, pack_tokens
        self.frame_dropout = frame_dropout

    def __call__(self, items: Sequence[AsrLlmItem]) -> dict[str, Any]:
        """Return the batch.

        Raises:
            DataError: there is no item, or one has no label or no frame; it is named.
        """
        if not items:
            raise DataError("a batch needs at least one utterance.")
        for item in items:
            self._require(item)
        sequences = [self._sequence(item) for item in items]
        placed = place([len(ids) for ids, _ in sequences], self.packing, self.pack_tokens)
        frames = [item.prepared.frames for item in items]
        batch: dict[str, Any] = self.front_end.batch([item.prepared for item in items])
        batch["audio_frames"] = torch.tensor(frames)
        batch |= self._rows(sequences, placed, frames)
        batch["label_counts"] = torch.tensor([len(item.labels) for item in items])
        batch["row_counts"] = [item.prepared.valid for item in items]
        batch["frame_counts"] = frames
        batch["placeholders"] = [ids.count(AUDIO) for ids, _ in sequences]
        keys = [item.key for item in items]
        if self.frame_dropout and all(key is not None for key in keys):
            batch["frame_keep"] = self._keep(items)
        seconds = [item.seconds for item in items]
        batch["batch_info"] = {
            "ids": [item.id for item in items],
            "texts": [item.text for item in items],
            "keys": keys,
            "audio_seconds": sum(seconds),
            "padded_seconds": max(sum(seconds), sum(seconds) / placed.filled),
        }
        return batch

    def _require(self, item: AsrLlmItem) -> None:
        if not item.labels:
            raise DataError(
                f"sample {item.id!r} has no label at all: nothing of it would reach the loss. An "
                "empty transcript still has the end of the turn; see ChatFormat.encode()."
            )
        if projected_lengths(item.prepared.frames, self.stride) < 1:
            raise DataError(
                f"sample {item.id!r} has {item.prepared.frames} frames; the projector needs "
                f"{self.stride} for one input of the decoder."
            )

    def _sequence(self, item: AsrLlmItem) -> tuple[list[int], list[int]]:
        """Input ids and shifted labels of one utterance."""
        prompt = self.chat.prompts[item.prompt]
        count = projected_lengths(item.prepared.frames, self.stride)
        ids = [*prompt.before, *[AUDIO] * count, *prompt.after, *item.labels[:-1]]
        unasked = len(ids) - len(item.labels)
        return ids, [*[IGNORED] * unasked, *item.labels]

    def _rows(
        self,
        sequences: Sequence[tuple[list[int], list[int]]],
        placed: Placed,
        frames: Sequence[int],
    ) -> dict[str, Tensor]:
        shape = placed.positions.shape
        input_ids = torch.full(shape, self.chat.pad_id)
        labels = torch.full(shape, IGNORED)
        longest = projected_lengths(max(frames), self.stride)
        positions, sources = [], []
        for number, ((ids, asked), (row, first)) in enumerate(
            zip(sequences, placed.places, strict=True)
        ):
            span = slice(first, first + len(ids))
            own = torch.tensor(ids)
            input_ids[row, span], labels[row, span] = own, torch.tensor(asked)
            steps = (own == AUDIO).nonzero().flatten()
            positions.append(steps + row * shape[1] + first)
            sources.append(torch.arange(len(steps)) + number * longest)
        return {
            "input_ids": input_ids,
            "positions": placed.positions,
            "labels": labels,
            "audio_positions": torch.cat(positions),
            "audio_sources": torch.cat(sources),
        }

    def _keep(self, items: Sequence[AsrLlmItem]) -> Tensor:
        frames = max(item.prepared.frames for item in items)
        keep = torch.ones(len(items), frames)
        for row, item in zip(keep, items, strict=True):
            assert item.key is not None
            generator = torch_generator("asr-llm-frames", tuple(item.key), item.id)
            drawn = torch.rand(item.prepared.frames, generator=generator)
            row[: len(drawn)] = (drawn >= self.frame_dropout).float()
        return keep

    def resume_fingerprint(self) -> dict[str, Any]:
        """JSON that changes when batches would."""
        return {
            "front_end": self.front_end.fingerprint(),
            "chat": self.chat.fingerprint(),
            "stride": self.stride,
            "packing": [self.packing, self.pack_tokens],
            "frame_dropout": self.frame_dropout,
        }
