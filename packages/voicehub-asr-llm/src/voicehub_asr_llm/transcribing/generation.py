"""Batched generation with limits on length and repetition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from voicehub_asr_llm.config import GenerationConfig
from voicehub_asr_llm.decoders.loading import plain

#: Longest phrase that is looked for, and tokens that a recording may have however short it is.
_PHRASE, _FLOOR = 8, 16


class Written(NamedTuple):
    """What was generated for one recording.

    Attributes:
        ids: tokens, without the end; a phrase that repeated itself to the limit is there once.
        finished: the model ended the text itself; else a limit did.
    """

    ids: list[int]
    finished: bool


@dataclass(frozen=True)
class Limits:
    """When a transcript ends, at the latest.

    Attributes:
        tokens: most tokens of each recording.
        max_repeats: a phrase said so often in a row ends the text.
    """

    tokens: tuple[int, ...]
    max_repeats: int

    @classmethod
    def of(cls, config: GenerationConfig, seconds: Sequence[float]) -> Limits:
        """Limits of recordings of so many seconds."""
        tokens = (
            min(config.max_new_tokens, _FLOOR + int(config.tokens_per_second * duration))
            for duration in seconds
        )
        return cls(tuple(tokens), config.max_repeats)


def generate(
    decoder: nn.Module,
    inputs: Sequence[Tensor],
    limits: Limits,
    config: GenerationConfig,
    *,
    end_id: int,
    pad_id: int,
    beam_size: int = 1,
) -> list[Written]:
    """Write transcripts.

    Args:
        decoder: perhaps inside peft.
        inputs: of each recording, (steps, width): the conversation up to its transcript.
        limits: see there.
        config: penalties.
        end_id: token that ends a transcript.
        pad_id: fills what was ended.
        beam_size: 1 is greedy.

    Returns:
        Tokens of each.
    """
    from transformers import GenerationConfig as Settings

    longest = max(len(row) for row in inputs)
    padded = inputs[0].new_zeros(len(inputs), longest, inputs[0].shape[-1])
    mask = torch.zeros(len(inputs), longest, dtype=torch.long, device=padded.device)
    for place, row in enumerate(inputs):
        # What is generated follows the last step of a row, so that padding stands in front.
        padded[place, longest - len(row) :] = row
        mask[place, longest - len(row) :] = 1
    settings = Settings(
        max_new_tokens=max(limits.tokens),
        do_sample=False,
        num_beams=beam_size,
        eos_token_id=[end_id],
        pad_token_id=pad_id,
        repetition_penalty=config.repetition_penalty,
        no_repeat_ngram_size=config.no_repeat_ngram_size,
    )
    stop: Any = _Stop(limits)
    found = plain(decoder).generate(
        inputs_embeds=padded,
        attention_mask=mask,
        generation_config=settings,
        stopping_criteria=[stop],
    )
    return [
        _cut(row, limit, limits.max_repeats, end_id)
        for row, limit in zip(found.tolist(), limits.tokens, strict=True)
    ]


class _Stop:
    """Ends a text at its own limit, or once it goes round in circles."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits

    def __call__(self, input_ids: Tensor, scores: Any, **_: Any) -> Tensor:
        rows = input_ids.tolist()
        # A beam search looks at more candidates of a recording than it has beams.
        each = len(rows) // len(self.limits.tokens)
        done = [
            len(row) >= self.limits.tokens[place // each]
            or repeated(row, self.limits.max_repeats) is not None
            for place, row in enumerate(rows)
        ]
        return torch.tensor(done, dtype=torch.bool, device=input_ids.device)


def repeated(ids: Sequence[int], times: int) -> int | None:
    """Length of the shortest phrase with which ``ids`` end ``times`` times in a row, if any."""
    for length in range(1, _PHRASE + 1):
        if len(ids) < length * times:
            return None
        phrase = ids[len(ids) - length :]
        copies = (ids[len(ids) - length * (n + 1) : len(ids) - length * n] for n in range(times))
        if all(copy == phrase for copy in copies):
            return length
    return None


def _cut(ids: list[int], limit: int, max_repeats: int, end_id: int) -> Written:
    if end_id in ids:
        return Written(ids[: ids.index(end_id)], True)
    ids = ids[:limit]
    for stop in range(1, len(ids) + 1):
        length = repeated(ids[:stop], max_repeats)
        if length is not None:
            return Written(ids[: stop - length * (max_repeats - 1)], False)
    return Written(ids, False)
